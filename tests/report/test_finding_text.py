"""Lines of a program with suggested arguments: what is changed, and what is not sure enough to change."""

from __future__ import annotations

import pytest

from profiler.report.finding_text import with_arguments


@pytest.mark.parametrize(
    ("source", "name", "arguments", "expected"),
    [
        (
            "return torch.optim.AdamW(groups, lr=c.lr)  # built once",
            "AdamW", {"fused": True, "foreach": False},
            "return torch.optim.AdamW(groups, lr=c.lr, fused=True)",
        ),
        (
            "self.opt = AdamW(self.parameters(), foreach=True, fused=False)",
            "AdamW", {"fused": True, "foreach": False},
            "self.opt = AdamW(self.parameters(), foreach=False, fused=True)",
        ),
        (
            "loader = data.DataLoader(images, batch_size=8, num_workers=4, persistent_workers=True, prefetch_factor=2)",
            "DataLoader", {"num_workers": 0},
            "loader = data.DataLoader(images, batch_size=8, num_workers=0)",
        ),
        (
            "loader = DataLoader(images, 8)",
            "DataLoader", {"num_workers": 3, "persistent_workers": True},
            "loader = DataLoader(images, 8, num_workers=3, persistent_workers=True)",
        ),
        ("loader = DataLoader(", "DataLoader", {"num_workers": 3}, ""),
        ("loader = DataLoader(images, **options)", "DataLoader", {"num_workers": 3}, ""),
        ("pair = DataLoader(one), DataLoader(other)", "DataLoader", {"num_workers": 3}, ""),
        ("loader = make_loader(images)", "DataLoader", {"num_workers": 3}, ""),
    ],
)  # fmt: skip
def test_a_line_gets_the_suggested_arguments(
    source: str, name: str, arguments: dict[str, object], expected: str
) -> None:
    assert with_arguments(source, name, arguments) == expected
