package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/fairlead/fairlead/events"
)

// variables is the file with the input variables, in a workspace, which all of the
// tool's commands on the module get. It is outside of the module, whose files a module
// may list and pack.
const variables = "vars.json"

// kind is which of the tools a tool is, and of which version.
type kind struct {
	openTofu bool
	version  string // as semver has it
}

// withVariables returns the argument that gives a command the variables, if this
// tool takes it there. OpenTofu does since 1.8: what encrypts a state, or where a
// module comes from, may be a variable. Terraform does for init. With a saved plan,
// which has the variables, both take them since some variables are in no plan, and
// refused them before.
func (k kind) withVariables(command, path string) []string {
	switch {
	case command == "apply" && !k.takesWithPlan():
		return nil
	case k.openTofu || command == "init" || command == "apply":
		return []string{"-var-file=" + path}
	}
	return nil
}

// takesWithPlan reports whether the tool takes variables beside a saved plan.
func (k kind) takesWithPlan() bool {
	since := "v1.10.0"
	if k.openTofu {
		since = "v1.11.0"
	}
	return semver.Compare(k.version, since) >= 0
}

// The bounds of what an environment takes, in bytes: the system's are 128 KiB for
// one variable and 2 MiB for all.
const (
	maxEnvVariable = 64 << 10
	maxEnv         = 1 << 20
)

// variablesOfApply returns what gives an apply the variables through its
// environment. It is for an OpenTofu that takes them in no other way: it needs them
// to read an encrypted plan, and to load modules whose source is a variable. All
// else it has from the plan; so what is too large is left out. A provisioner gets
// the tool's environment, and could have had them from its module.
func (k kind) variablesOfApply(vars map[string]events.SpecVar) map[string]string {
	if !k.openTofu || k.takesWithPlan() {
		return nil
	}
	env := map[string]string{}
	left := maxEnv
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		var text string
		if json.Unmarshal(vars[name].Value, &text) != nil || string(vars[name].Value) == "null" {
			// The tool reads an expression here, in which these begin a template.
			text = strings.NewReplacer("${", "$${", "%{", "%%{").Replace(string(vars[name].Value))
		}
		if len(text) <= maxEnvVariable && len(text) <= left {
			env["TF_VAR_"+name] = text
			left -= len(text)
		}
	}
	return env
}

// reports returns the argument that has a plan report in JSON to a file, beside what
// it prints for people; only OpenTofu has it, since 1.12. An apply gets none: what
// provisioners print would be in the file, without a bound, on the disk that the
// state is to be saved to.
func (k kind) reports(path string) []string {
	if k.openTofu && semver.Compare(k.version, "v1.12.0") >= 0 {
		return []string{"-json-into=" + path}
	}
	return nil
}

// readOutput is how long what a tool that has ended wrote last may take to arrive.
const readOutput = time.Second

// start runs the tool once, for do, in the environment that terraform-exec gives
// it. It is for commands whose arguments terraform-exec does not have.
func (r *runner) start(ctx context.Context, stdout io.Writer, args ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	cmd := r.program(args...)
	cmd.Stdout, cmd.Stderr = stdout, r.stderr
	cmd.SysProcAttr = withStep()
	cmd.WaitDelay = readOutput
	if err := cmd.Start(); err != nil {
		return err
	}
	r.began(cmd.Process.Pid)
	stop := context.AfterFunc(ctx, func() { cmd.Process.Signal(os.Interrupt) }) // fails if it has just ended: fine
	defer stop()
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // what it has left behind holds its output open
	}
	return err
}

// program is the tool with these arguments, in the module.
func (r *runner) program(args ...string) *exec.Cmd {
	cmd := exec.Command(r.tool.path, args...)
	cmd.Dir = r.src
	for k, v := range r.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Env = append(cmd.Env, "TF_IN_AUTOMATION=1")
	return cmd
}

// began notes the tool that is at work.
func (r *runner) began(pid int) {
	r.own.Store(int64(pid))
	os.WriteFile(r.pid, []byte(strconv.Itoa(pid)+"\n"), 0o600) // for people; nothing depends on it
}
