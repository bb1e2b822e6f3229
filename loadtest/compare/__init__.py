"""One forward pass against five: the same requests through the same facade and engine, variants taking turns."""
