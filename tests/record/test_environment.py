"""The environment collector records facts, versions, the commit, and settings by an allow-list."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from profiler.record.collectors import host


def test_facts_of_the_machine_and_versions() -> None:
    facts, versions = host.host_facts(), host.versions()
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] > 1 << 28
    assert facts["cpu"]
    assert facts["kernel"]
    assert versions["numpy"]
    assert versions["python"].startswith("3.")


def test_only_listed_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    written = host.host_facts()["environment"]
    assert written["OMP_NUM_THREADS"] == "3"
    assert set(written) <= set(host.VARIABLES)
    assert "s3cr3t" not in str(host.EnvironmentCollector().describe())


def test_commit_and_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.git_commit(tmp_path) is None
    assert host.git_commit(tmp_path / "none") is None

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "a")
    assert host.git_commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "a").write_text("2")
    assert host.git_commit(tmp_path) == git("rev-parse", "HEAD") + "+changes"
    monkeypatch.setattr(host, "read_git", lambda _, words, __: "3f2a9c1" if words[0] == "rev-parse" else None)
    assert host.git_commit(tmp_path) == "3f2a9c1+unknown", "git status took too long"


def test_a_git_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.git_commit(tmp_path) is None
