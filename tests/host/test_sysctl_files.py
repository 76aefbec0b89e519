"""What is set at boot: files of sysctl.d in their order, the kernel's command line; procps as a second opinion."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtop_tune.host.sysctl_files import DIRECTORIES, SysctlFiles, command_line_settings, dotted
from pgtop_tune.host.system_settings import BootSettings
from pgtop_tune.model.machine import Assignment
from tests.support.machine_tree import USUAL, write

MEGABYTES_2 = 2 << 20


def values(root: Path, name: str) -> list[tuple[str, str]]:
    return [(place.file, place.value) for place in SysctlFiles(root).of(name)]


def test_files_are_read_by_name_whatever_their_directory_and_the_last_line_wins(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "etc/sysctl.d/10-a.conf": "vm.swappiness = 1\nvm.swappiness=2\n",
            "usr/lib/sysctl.d/50-b.conf": "  vm/swappiness =3 \n",
            "run/sysctl.d/20-c.conf": "-vm.swappiness = 4\n",
            "etc/sysctl.d/90-not-read": "vm.swappiness = 99\n",
        },
    )
    found = SysctlFiles(tmp_path).of("vm.swappiness")
    assert found == (
        Assignment("1", "/etc/sysctl.d/10-a.conf", 1),
        Assignment("2", "/etc/sysctl.d/10-a.conf", 2),
        Assignment("4", "/run/sysctl.d/20-c.conf", 1),
        Assignment("3", "/usr/lib/sysctl.d/50-b.conf", 1),
    )


def test_of_two_files_with_one_name_the_administrators_is_read_and_a_link_to_nowhere_hides_one(tmp_path: Path) -> None:
    for rank, directory in enumerate(DIRECTORIES):
        write(tmp_path, {f"{directory}/50-same.conf": f"vm.swappiness = {rank}\n"})
    write(tmp_path, {"usr/lib/sysctl.d/60-hidden.conf": "vm.swappiness = 100\n"})
    (tmp_path / "etc/sysctl.d/60-hidden.conf").symlink_to("/dev/null")
    assert values(tmp_path, "vm.swappiness") == [("/etc/sysctl.d/50-same.conf", "0")]


def test_sysctl_conf_is_the_last_word_but_under_systemd_only_what_a_link_makes_of_it(tmp_path: Path) -> None:
    write(tmp_path, {"etc/sysctl.conf": "vm.swappiness = 7\n", "etc/sysctl.d/99-z.conf": "vm.swappiness = 8\n"})
    assert values(tmp_path, "vm.swappiness")[-1] == ("/etc/sysctl.conf", "7")
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert values(tmp_path, "vm.swappiness") == [("/etc/sysctl.d/99-z.conf", "8")]
    (tmp_path / "etc/sysctl.d/99-sysctl.conf").symlink_to("../sysctl.conf")
    assert values(tmp_path, "vm.swappiness") == [
        ("/etc/sysctl.d/99-sysctl.conf", "7"),
        ("/etc/sysctl.d/99-z.conf", "8"),
    ]


def test_comments_and_broken_lines_set_nothing_and_the_name_itself_beats_a_pattern(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "etc/sysctl.d/1.conf": "# vm.dirty_ratio = 1\n; vm.dirty_ratio = 2\nvm.dirty_ratio\nvm.dirty_ratio = 5\n",
            "etc/sysctl.d/2.conf": "vm.dirty_* = 9\n-vm.dirty_bytes\n",
        },
    )
    assert values(tmp_path, "vm.dirty_ratio") == [("/etc/sysctl.d/1.conf", "5")]
    assert values(tmp_path, "vm.dirty_background_ratio") == [("/etc/sysctl.d/2.conf", "9")]
    assert values(tmp_path, "vm.dirty_bytes") == []


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("vm.swappiness = 1 # as the manual says", "1"),
        ("vm.swappiness=1\t;x", "1"),
        ("vm.swappiness = 1 percent", "1"),
        ("vm.swappiness = 250 32000 -1 128 # of the kernel", "250 32000 -1 128"),
        # The kernel refuses a number with anything right behind it, and takes the whole of what is no number.
        ("vm.swappiness = 1# no blank", "1# no blank"),
        ("vm.swappiness = |/usr/share/x %p # y", "|/usr/share/x %p # y"),
    ],
)
def test_what_stands_behind_a_number_is_not_of_its_value(tmp_path: Path, line: str, value: str) -> None:
    write(tmp_path, {"etc/sysctl.d/1.conf": f"{line}\n"})
    assert values(tmp_path, "vm.swappiness") == [("/etc/sysctl.d/1.conf", value)]


def test_of_a_pair_the_one_set_last_counts_and_the_other_is_0_after_a_reboot(tmp_path: Path) -> None:
    lines = "vm.dirty_ratio = 15\nvm.dirty_bytes = 536870912\nvm.min_free_kbytes = 9\n"
    write(tmp_path, {**USUAL, "etc/sysctl.d/a.conf": lines})
    boot = BootSettings(tmp_path)
    assert boot.of("vm.dirty_ratio").assignments == (
        Assignment("15", "/etc/sysctl.d/a.conf", 1),
        Assignment("0", "/etc/sysctl.d/a.conf", 2),
    )
    assert boot.of("vm.dirty_bytes").value == "536870912"
    assert boot.of("vm.dirty_background_ratio").value is None
    write(tmp_path, {"etc/sysctl.d/b.conf": "vm.dirty_ratio = 10\n"})
    boot = BootSettings(tmp_path)
    assert (boot.of("vm.dirty_ratio").value, boot.of("vm.dirty_bytes").value) == ("10", "0")


@given(content=st.binary(max_size=200))
def test_no_file_makes_the_reader_fail(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "etc").mkdir()
    (root / "etc/sysctl.conf").write_bytes(content)
    SysctlFiles(root).of("vm.swappiness")


def test_the_first_separator_says_which_one_is_meant() -> None:
    assert dotted("net/ipv4/conf/eth0.100/forwarding") == "net.ipv4.conf.eth0/100.forwarding"
    assert dotted("vm.swappiness") == dotted("vm/swappiness") == "vm.swappiness"


@pytest.mark.root
@pytest.mark.skipif(shutil.which("sysctl") is None, reason="no procps")
@settings(max_examples=40)
@given(data=st.data())
def test_procps_reads_the_same_files_to_the_same_values(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A private mount namespace, our directories over the machine's, and a dry run: nothing is set."""
    root = tmp_path_factory.mktemp("root")
    line = st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", " ", "#", "-"]),
        st.sampled_from(["vm.swappiness", "vm/swappiness", "vm.dirty_ratio"]),
        st.sampled_from(["=", " = "]),
        st.integers(0, 100),
    )
    for directory in DIRECTORIES[:2]:
        (root / directory).mkdir(parents=True)
        for name in data.draw(st.lists(st.sampled_from(["10-a", "20-b", "99-z"]), unique=True)):
            lines = data.draw(st.lists(line, max_size=3))
            write(root, {f"{directory}/{name}.conf": "\n".join([*lines, ""])})
    write(root, {"etc/sysctl.conf": data.draw(st.sampled_from(["", "vm.swappiness = 33\n"]))})
    script = (
        'mount --bind "$0/run" /run && mount --bind "$0/etc/sysctl.d" /etc/sysctl.d && '
        'mount --bind "$0/etc/sysctl.conf" /etc/sysctl.conf && exec sysctl --dry-run --system'
    )
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, str(root)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no mounts here: {done.stderr}")
    for name in ("vm.swappiness", "vm.dirty_ratio"):
        said = [text.partition("=")[2].strip() for text in done.stdout.splitlines() if text.startswith(f"{name} =")]
        assert [value for _, value in values(root, name)][-1:] == said[-1:]


class TestCommandLine:
    def test_pools_by_size_transparent_pages_and_sysctls(self) -> None:
        line = (
            'quiet hugepages=64 hugepagesz=1G hugepages=4 transparent_hugepage=never sysctl.vm.swappiness=5 dyndbg="f '
            'a.c +p; hugepages=1" sysctl.kernel/numa_balancing=0 -- hugepagesz=2M hugepages=9'
        )
        assert command_line_settings(line, MEGABYTES_2) == {
            "vm.nr_hugepages": "64",
            "hugepages-1048576kB/nr_hugepages": "4",
            "transparent_hugepage/enabled": "never",
            "vm.swappiness": "5",
            "kernel.numa_balancing": "0",
        }

    def test_pages_of_nodes_add_up_and_another_default_size_is_the_default_pool(self) -> None:
        assert command_line_settings("default_hugepagesz=1G hugepages=0:2,1:3", 1 << 30) == {"vm.nr_hugepages": "5"}
        assert command_line_settings("hugepages=many hugepagesz=x hugepages=3", MEGABYTES_2) == {}

    @given(st.text(max_size=60), st.none() | st.just(MEGABYTES_2))
    def test_no_command_line_makes_it_fail(self, line: str, size: int | None) -> None:
        command_line_settings(line, size)

    def test_files_beat_the_command_line_and_tuned_is_named(self, tmp_path: Path) -> None:
        write(tmp_path, {**USUAL, "proc/cmdline": "hugepages=100 sysctl.vm.swappiness=5\n"})
        write(tmp_path, {"etc/sysctl.d/a.conf": "vm.swappiness = 9\n", "etc/tuned/active_profile": "postgresql\n"})
        boot = BootSettings(tmp_path)
        assert boot.of("vm.swappiness").value == "9"
        assert [place.file for place in boot.of("vm.swappiness").assignments] == [
            "/proc/cmdline",
            "/etc/sysctl.d/a.conf",
        ]
        assert boot.of("vm.nr_hugepages").value == "100"
        assert boot.of("vm.dirty_ratio").value is None
        assert "tuned (profile postgresql)" in boot.of("vm.swappiness").not_read
