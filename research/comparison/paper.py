"""The paper's figures (its tables wechat_full, kuairec_full, uber_full), shown next to ours."""

# Method -> (NLL, CRPS), mean of 5 runs.
WECHAT = {
    "gaussian": (2.1657, 0.4380),
    "sngp": (2.2730, 0.4439),
    "vbll": (2.1708, 0.4315),
    "der": (2.1443, 0.4226),
    "mdn": (1.9515, 0.4418),
    "qr": (2.0317, 0.4156),
    "cqr": (2.0446, 0.4226),
    "qr-mcd": (2.0297, 0.4172),
    "qr-vbll": (1.9616, 0.4134),
    "cr": (1.9199, 0.4063),
    "cr-sngp": (1.9377, 0.4151),
    "cr-mcd": (1.9245, 0.4072),
    "cr-vbll": (1.9189, 0.4068),
    "ensemble": (2.1502, 0.4315),
    "qr-ensemble": (1.9973, 0.4076),
    "cr-ensemble": (1.8981, 0.3982),
}
KUAIREC = {
    "gaussian": (1.5070, 0.2093),
    "sngp": (1.7470, 0.2394),
    "vbll": (1.5184, 0.2117),
    "der": (1.4163, 0.2131),
    "mdn": (1.2943, 0.2117),
    "qr": (1.3938, 0.1968),
    "cqr": (1.4018, 0.1976),
    "qr-mcd": (1.4049, 0.1978),
    "qr-vbll": (1.3716, 0.1964),
    "cr": (1.3978, 0.1991),
    "cr-sngp": (1.3874, 0.1998),
    "cr-mcd": (1.3937, 0.1987),
    "cr-vbll": (1.3867, 0.1989),
    "ensemble": (1.4980, 0.2085),
    "qr-ensemble": (1.3858, 0.1958),
    "cr-ensemble": (1.3880, 0.1980),
}
UBER = {
    "gaussian": (2.6766, 0.3039),
    "sngp": (1.8745, 0.2634),
    "vbll": (3.3107, 0.3061),
    "der": (2.8354, 0.3299),
    "mdn": (4.0078, 0.3264),
    "qr": (2.3728, 0.2670),
    "cqr": (1.9435, 0.2666),
    "qr-mcd": (2.1179, 0.2686),
    "qr-vbll": (1.7830, 0.2560),
    "cr": (2.5328, 0.2911),
    "cr-sngp": (1.7892, 0.2559),
    "cr-mcd": (2.2687, 0.2882),
    "cr-vbll": (1.7839, 0.2559),
    "ensemble": (2.7145, 0.3068),
    "qr-ensemble": (2.1280, 0.2686),
    "cr-ensemble": (2.3305, 0.2693),
}

# For each of our sources, the paper's data set that is shown next to it, and its name. The paper does not use KuaiRand;
# WeChat is its other short-video log.
BESIDE = {"kuairand": ("WeChat", WECHAT), "kuairec": ("KuaiRec", KUAIREC), "uber": ("Uber", UBER)}
