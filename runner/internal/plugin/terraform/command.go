package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/mod/semver"

	"github.com/fairlead/fairlead/runner/internal/plugin"
)

// variables is the file with the input variables, in a workspace.
const variables = "vars.json"

// writeVariables writes the input variables, which all of the tool's commands on
// the module get. It is a file: a command line is readable by every process. It
// is outside of the module, whose files a module may list and pack.
func (j *job) writeVariables() error {
	vars := make(map[string]json.RawMessage, len(j.spec.Vars))
	for name, v := range j.spec.Vars {
		vars[name] = v.Value
	}
	b, err := json.Marshal(vars)
	if err != nil {
		return plugin.Errorf(ReasonSpecInvalid, "the job spec holds a variable that is not JSON")
	}
	if err := os.WriteFile(j.path(variables), b, 0o600); err != nil {
		return fmt.Errorf("write the variables: %w", err)
	}
	return nil
}

// kind is which of the tools a tool is, and of which version.
type kind struct {
	openTofu bool
	version  string // as semver has it
}

// withVariables returns the argument that gives a command the variables, if this
// tool takes it there. OpenTofu does everywhere since 1.8: what encrypts a state,
// or where a module comes from, may be a variable, and it compares those of an
// apply with those of its plan. Terraform does for init, and for an apply since
// 1.10, from which on some variables are in no plan; before, a saved plan has all.
func (k kind) withVariables(command, path string) []string {
	if k.openTofu || command == "init" || command == "apply" && semver.Compare(k.version, "v1.10.0") >= 0 {
		return []string{"-var-file=" + path}
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
