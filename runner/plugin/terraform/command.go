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

// variables is the name of the file with the input variables in a workspace. All commands on the module use it. It is
// outside the module's folder, because a module may list and pack its own files.
const variables = "vars.json"

// kind is a tool, OpenTofu or Terraform, and its version.
type kind struct {
	openTofu bool
	version  string // in semver form, with the leading v
}

// withVariables returns the argument that passes the variables to a command, or nothing if the tool refuses the argument for
// this command. OpenTofu accepts the argument for all commands since 1.8, because a state's encryption or a module's source
// may depend on a variable. Terraform accepts it for init. A saved plan already contains most variables. So older versions
// of both tools refuse the argument for an apply of a saved plan. Newer versions accept it for the variables that are not in
// a plan.
func (k kind) withVariables(command, path string) []string {
	switch {
	case command == "apply" && !k.acceptsVariablesWithPlan():
		return nil
	case k.openTofu || command == "init" || command == "apply":
		return []string{"-var-file=" + path}
	}
	return nil
}

// acceptsVariablesWithPlan reports whether the tool accepts variables together with a saved plan.
func (k kind) acceptsVariablesWithPlan() bool {
	since := "v1.10.0"
	if k.openTofu {
		since = "v1.11.0"
	}
	return semver.Compare(k.version, since) >= 0
}

// Limits of the variables in an environment, in bytes. The system allows 128 KiB for one variable and 2 MiB for all.
const (
	maxEnvVariable = 64 << 10
	maxEnv         = 1 << 20
)

// applyEnvironment returns the TF_VAR_ variables of an apply, for versions of OpenTofu that accept variables in no other
// way. OpenTofu needs them to read an encrypted plan and to load modules whose source is a variable. All other values come
// from the plan, so variables above the limits are omitted. A provisioner gets these variables with the tool's environment.
// This reveals nothing new, because the module could pass the same values to the provisioner.
func (k kind) applyEnvironment(vars map[string]events.SpecVar) map[string]string {
	if !k.openTofu || k.acceptsVariablesWithPlan() {
		return nil
	}
	env := map[string]string{}
	left := maxEnv
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		var text string
		if json.Unmarshal(vars[name].Value, &text) != nil || string(vars[name].Value) == "null" {
			// The tool parses the value as an expression, in which ${ and %{ begin a template.
			text = strings.NewReplacer("${", "$${", "%{", "%%{").Replace(string(vars[name].Value))
		}
		if len(text) <= maxEnvVariable && len(text) <= left {
			env["TF_VAR_"+name] = text
			left -= len(text)
		}
	}
	return env
}

// reportArgs returns the argument that makes a plan write a JSON report to a file, besides its output for people. Only
// OpenTofu has it, since 1.12. An apply gets none: its report would include the unbounded output of provisioners, and fill
// the disk that must have space for the state.
func (k kind) reportArgs(path string) []string {
	if k.openTofu && semver.Compare(k.version, "v1.12.0") >= 0 {
		return []string{"-json-into=" + path}
	}
	return nil
}

// outputDrainTime bounds reading the last output of a tool that has ended.
const outputDrainTime = time.Second

// start runs the tool once, in the environment that terraform-exec would give the tool. The method do calls start. start is
// for commands whose arguments terraform-exec does not support.
func (r *runner) start(ctx context.Context, stdout io.Writer, args ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	cmd := r.program(args...)
	cmd.Stdout, cmd.Stderr = stdout, r.stderr
	cmd.SysProcAttr = processGroup()
	cmd.WaitDelay = outputDrainTime
	if err := cmd.Start(); err != nil {
		return err
	}
	r.recordPID(cmd.Process.Pid)
	stop := context.AfterFunc(ctx, func() { cmd.Process.Signal(os.Interrupt) }) // an error means that the tool has just ended
	defer stop()
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // a leftover process keeps the output open
	}
	return err
}

// program returns the command that runs the tool with these arguments in the module's folder.
func (r *runner) program(args ...string) *exec.Cmd {
	cmd := exec.Command(r.tool.path, args...)
	cmd.Dir = r.src
	for k, v := range r.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Env = append(cmd.Env, "TF_IN_AUTOMATION=1")
	return cmd
}

// recordPID records the process number of the running tool.
func (r *runner) recordPID(pid int) {
	r.ownPID.Store(int64(pid))
	os.WriteFile(r.pid, []byte(strconv.Itoa(pid)+"\n"), 0o600) // for people; no code reads it
}
