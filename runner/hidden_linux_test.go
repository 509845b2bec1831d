package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/runner/internal/shim"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/program"
)

// unprivileged is the ID of a user without privileges, like that of the runner's service.
const unprivileged = 65532

// foldersOf returns a folder with the runner and the tool, and a data folder of the user. The user can read both. Without root
// it skips the test.
func foldersOf(t *testing.T, uid uint32) (dir, data string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can start an agent as another user")
	}
	dir = t.TempDir()
	data = filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(data, int(uid), int(uid)); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"runner": self, "tofu": tool(t)} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		program.Write(t, filepath.Join(dir, name), b)
	}
	return dir, data
}

// startAs starts an agent as another user, on a data folder of that user.
func startAs(t *testing.T, s *plane.Plane, uid uint32, env ...string) *agentProcess {
	t.Helper()
	dir, data := foldersOf(t, uid)
	cmd := exec.Command(filepath.Join(dir, "runner"), "agent", "--url", s.URL(), "--data", data, "--log-level", "debug")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "FAIRLEAD_SHARED_PROCESS=true", "AMBIENT_SECRET=must-not-reach-a-tool", "GORACE=atexit_sleep_ms=0",
		"FAIRLEAD_ENROLMENT_TOKEN=" + s.EnrolmentToken(), "FAIRLEAD_TOFU=" + filepath.Join(dir, "tofu"), "FAIRLEAD_PASS_ENV=GORACE"}, env...)
	return startCommand(t, cmd, data)
}

// A plan must not read the agent's session or another job's launch token from the memory of the runner's processes.
func TestToolCannotReadAgentAndStep(t *testing.T) {
	t.Parallel()
	s := plane.New(t, plane.Options{})
	a := startAs(t, s, unprivileged)
	// Because of the bracket, the pattern does not match the command line of the shell that searches.
	ref := s.Push(module(fmt.Sprintf(`for f in $(grep -l '[%s]%s' /proc/[0-9]*/cmdline 2>/dev/null); do
		p=$${f%%/cmdline}
		for n in environ mem; do
			if (exec 3<$p/$n) 2>/dev/null; then echo "open: $n of $(tr '\0' ' ' <$f)"; else echo "refused: $n of $(tr '\0' ' ' <$f)"; fi
		done
	done`, a.Data[:1], a.Data[1:])))
	plan := succeeded(t, s.UntilFinished(s.Queue(spec("plan", "local", ref))))
	log := string(succeeded(t, s.UntilFinished(s.Queue(applySpec("apply", "local", ref, plan)))).Log)
	program := filepath.Join(filepath.Dir(a.Data), "runner")
	for _, what := range []string{"environ", "mem"} {
		for of, opens := range map[string]string{
			program + " agent --url":                               "refused",
			program + " step --dir":                                "refused",
			shim.Name + " " + program + " step --dir":              "refused",
			filepath.Join(filepath.Dir(a.Data), "tofu") + " apply": "open", // shows that the test can detect access
		} {
			if want := opens + ": " + what + " of " + of; !strings.Contains(log, want) {
				t.Errorf("the log lacks %q:\n%s", want, log)
			}
		}
	}
}
