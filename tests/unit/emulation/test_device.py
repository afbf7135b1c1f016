from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from dcoco_core.emulation.device import Device, DeviceUse
from tests.unit.emulation.stack import VirtualClock


def test_work_takes_the_profiles_time_stretched() -> None:
    clock = VirtualClock(seconds=100.0)
    device = clock.device(time_scale=3.0)
    device.work(0.5, device.now())
    assert clock.seconds == pytest.approx(101.5)
    assert device.use == DeviceUse(num_pieces=1, busy_s=1.5, late_s=0.0)


def test_what_is_computed_meanwhile_does_not_come_on_top() -> None:
    clock = VirtualClock()
    device = clock.device()
    asked_at = device.now()
    clock.sleep(0.3)  # the stage's own work
    device.work(0.5, asked_at)
    assert clock.seconds == pytest.approx(0.5)


def test_a_device_does_one_thing_at_a_time() -> None:
    clock = VirtualClock()
    device = clock.device()
    device.work(1.0, asked_at=0.0)
    device.work(1.0, asked_at=0.0)  # waited for the first
    assert clock.seconds == pytest.approx(2.0)


def test_late_wakes_do_not_add_up_in_a_queue() -> None:
    clock = VirtualClock()
    device = Device(clock=clock.read, sleep=lambda seconds: clock.sleep(seconds + 0.01))
    for _ in range(50):
        device.work(1.0, asked_at=0.0)
    assert clock.seconds == pytest.approx(50.0, abs=0.02)
    assert device.use.busy_s == pytest.approx(50.0)
    assert 0.0 < device.use.late_s <= 0.02 * 50


def test_an_idle_device_starts_when_asked() -> None:
    clock = VirtualClock()
    device = clock.device()
    device.work(1.0, device.now())
    clock.sleep(5.0)
    device.work(1.0, device.now())
    assert clock.seconds == pytest.approx(7.0)


def test_sleep_that_returns_early_is_repeated() -> None:
    clock = VirtualClock()
    device = Device(clock=clock.read, sleep=lambda seconds: clock.sleep(seconds * 0.9 + 1e-9))
    device.work(1.0, device.now())
    assert clock.seconds >= 1.0


def test_threads_share_a_device_without_overlap() -> None:
    device = Device()
    began = monotonic()
    with ThreadPoolExecutor(4) as threads:
        for _ in range(8):
            threads.submit(lambda: device.work(0.01, device.now()))
    assert monotonic() - began >= 0.08
    assert device.use.num_pieces == 8
    assert device.use.busy_s == pytest.approx(0.08)


def test_a_time_scale_is_positive() -> None:
    with pytest.raises(ValueError, match="time_scale"):
        Device(time_scale=0.0)
