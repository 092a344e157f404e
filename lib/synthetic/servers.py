"""The models under their backends, as the model of the machine has them: constants that give back what is published."""

from __future__ import annotations

from lib.synthetic.machine import LLAMA, MLX, Served

SERVED = {
    (LLAMA, "lfm2.5-8b-a1b"): Served(
        dispatch_s=0.1997, read_tok_s=890.65, attend_s=75.32, itl_ms=11.7755, attend_ms=0.11958, heat_ms=0.1766,
        prefill_W=17.5, decode_W=13.237, long_W=0.763, start_W=0.350, brief_W=0.35, ram_MB=5300, ram_long_MB=5473,
        gpu_long_MHz=(1472.0, 1487.0), p_freq_MHz=4024.0, e_pct=1.2,
    ),
    (LLAMA, "trinity-nano"): Served(
        dispatch_s=0.0260, read_tok_s=747.23, attend_s=26.18, itl_ms=11.3519, attend_ms=0.15924, heat_ms=0.0454,
        prefill_W=17.2, decode_W=12.361, long_W=0.679, start_W=0.250, brief_W=0.16, ram_MB=4410, ram_long_MB=4543,
        sawtooth_MB=140, gpu_long_MHz=(1476.0, 1530.0), p_freq_MHz=4026.0, e_pct=1.1,
    ),
    (LLAMA, "smallthinker-4b-a0.6b"): Served(
        dispatch_s=0.3647, read_tok_s=1571.32, attend_s=362.24, itl_ms=7.4746, attend_ms=0.33674, heat_ms=0.1728,
        prefill_W=17.5, decode_W=13.894, long_W=0.288, start_W=0.451, brief_W=0.72, ram_MB=3590, ram_long_MB=3716,
        gpu_long_MHz=(1474.0, 1525.0), p_freq_MHz=4021.0, p_short_pct=87.7, e_pct=1.4,
    ),
    (LLAMA, "granite4-h-tiny"): Served(
        dispatch_s=0.5956, read_tok_s=624.54, attend_s=212.35, itl_ms=19.4083, attend_ms=0.07351, heat_ms=0.2911,
        prefill_W=17.9, decode_W=13.074, long_W=1.986, start_W=0.350, brief_W=0.35, ram_MB=4560, ram_long_MB=4706,
        sawtooth_MB=170, gpu_long_MHz=(1480.0, 1550.0), p_freq_MHz=4030.0, e_pct=1.3,
    ),
    (LLAMA, "gemma4-e2b"): Served(
        dispatch_s=0.2983, read_tok_s=796.90, attend_s=75.79, itl_ms=16.8180, attend_ms=0.21486, heat_ms=0.2523,
        prefill_W=17.6, decode_W=13.716, long_W=2.445, start_W=0.350, brief_W=0.35, ram_MB=3400, ram_long_MB=3448,
        gpu_long_MHz=(1475.0, 1540.0), p_freq_MHz=4027.0, e_pct=1.5,
    ),
    (LLAMA, "gemma4-e4b"): Served(
        dispatch_s=0.2441, read_tok_s=363.63, attend_s=295.38, itl_ms=36.2943, attend_ms=0.24121, heat_ms=0.5444,
        prefill_W=17.8, decode_W=13.941, long_W=1.342, start_W=0.350, brief_W=0.35, ram_MB=5560, ram_long_MB=5592,
        ram_peak_MB=5650, ram_peak_ctx=4096, gpu_long_MHz=(1477.0, 1560.0), p_freq_MHz=4022.0, p_short_pct=97.8,
        e_pct=1.7,
    ),
    (MLX, "lfm2.5-8b-a1b"): Served(
        dispatch_s=0.2006, read_tok_s=862.20, attend_s=73.85, itl_ms=12.0637, attend_ms=0.12590, heat_ms=0.1810,
        prefill_W=17.3, decode_W=11.837, long_W=1.063, start_W=0.350, brief_W=0.35, ram_MB=4380, ram_long_MB=4500,
        gpu_long_MHz=(1473.0, 1500.0), gpu_decode_long_pct=98.9, p_freq_MHz=4018.0, e_pct=1.0, e_busy=((512, 256),),
        short_pct={256: 0.4, 512: 1.2, 1024: 2.3},
    ),
    (MLX, "trinity-nano"): Served(
        dispatch_s=0.0934, read_tok_s=1083.95, attend_s=60.04, itl_ms=12.1126, attend_ms=0.18721, heat_ms=0.1817,
        prefill_W=17.0, decode_W=10.961, long_W=0.939, start_W=0.350, brief_W=0.35, ram_MB=3610, ram_long_MB=3712,
        sawtooth_MB=120, gpu_long_MHz=(1474.0, 1520.0), gpu_decode_long_pct=95.9, p_freq_MHz=4004.0, p_long_pct=95.15,
        e_pct=1.2, e_busy=((1024, 256),), short_pct={256: 0.8, 512: 2.1, 1024: 3.9},
    ),
    (MLX, "granite4-h-tiny"): Served(
        dispatch_s=0.5528, read_tok_s=646.57, attend_s=190.05, itl_ms=14.0084, attend_ms=0.08352, heat_ms=0.2101,
        prefill_W=17.6, decode_W=8.951, long_W=1.889, start_W=0.650, brief_W=1.36, ram_MB=3620, ram_long_MB=3683,
        ram_peak_MB=3968, ram_peak_ctx=256, gpu_long_MHz=(1478.0, 1535.0), gpu_decode_long_pct=94.6,
        p_freq_MHz=3990.0, e_pct=1.6, e_busy=((512, 256), (256, 512)),
        short_pct={256: 3.0, 512: 41.3, 1024: 70.7}, shorter_pct={512: 4.0, 1024: 2.0},
    ),
}  # fmt: skip
