"""Sends twice the load that the server can handle, with TLS and identities on."""

from dataclasses import replace

from benchmarks.gates.gates_bench import GatesBench, identity
from loadtest.generator.plan import RequestMix
from loadtest.scenarios.overload import run_overload, saturating_plan


def measure_overload(bench: GatesBench) -> None:
    bench.say(f"overload at 2x for {bench.plan.overload_s:g} s, with TLS and identities")
    text, token = identity("caller", 'calls = ["predict", "read"]', "rows_per_s = 1e9", "concurrent_rows = 1e9")
    file = bench.write_identities("overload.toml", text)
    options = [*bench.server_options, "--identities", str(file)]
    with bench.server(*options, tls=bench.tls) as server:
        plan = replace(
            saturating_plan(server.address, RequestMix(model=bench.model.name)),
            tls_ca=str(bench.folder / "ca.pem"),
            metadata={"authorization": f"Bearer {token}"},
        )
        report = run_overload(plan, 2.0, bench.plan.overload_s)
    bench.say(f"  peak {report.peaks}; {report.run.shed} refused of {report.run.sent}, {dict(report.run.errors)}")
    name = "overload at 2x with TLS and identities"
    bench.figures.add(f"{name}: goodput, share of the peak", report.goodput_share, ">= 0.9")
    bench.figures.add(f"{name}: wrong answers", sum(report.run.check_failures.values()), "== 0")
