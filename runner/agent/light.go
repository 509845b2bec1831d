package agent

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/bound"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/providers"
)

// lightProgram is the name of the program of light steps. It is in the folder of the agent's program.
const lightProgram = "fairlead-step"

// versionFor bounds asking the program of light steps for its version.
const versionFor = 10 * time.Second

// findLight returns the program of light steps beside this program; "" if there is none, or if it has another version: agent and
// step agree on their files only within a version.
func findLight(ctx context.Context, version string, log *slog.Logger) string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	program := filepath.Join(filepath.Dir(self), lightProgram)
	if _, err := os.Stat(program); err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, versionFor)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "version").Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != version {
		log.Warn("the program of light steps is not used: it has another version than this agent; jobs start more slowly until both are of one release",
			"program", program, "version", got, "want", version, "err", err)
		return ""
	}
	return program
}

// isLight reports whether a job needs neither a client of a cloud nor a builder, so that its step runs in the program of light steps.
// token is the launch token that the step gets. The control plane decides it for the log and the state, which only it knows.
// If it is wrong, nothing unsafe happens: the log goes through the API, and a job with a bucket fails before it changes anything.
func isLight(c wire.Claim, in attempt.Input, token string) bool {
	op := job.Operation(c.Operation)
	if !c.APIOnly || op == job.OpBuild || in.Role != nil || bound.Role(token) != "" {
		return false
	}
	if m, err := providers.ParseMirror(in.Mirror); err != nil || m.Bucket != "" {
		return false
	}
	if policy, err := runnerspec.ParsePolicy(in.Policy); in.Policy != "" && (err != nil || policy.OfAWS()) {
		return false
	}
	if ledger, err := runnerspec.ParseLedger(in.Ledger); in.Ledger != "" && (err != nil || ledger.Store == runnerspec.StoreS3) {
		return false
	}
	if seed, err := runnerspec.ParseReference(in.InstallKey); err == nil && seed.OfAWS() {
		return false
	}
	secrets, err := runnerspec.SecretsOf(in.Secrets, c.Component)
	return err == nil && !slices.ContainsFunc(secrets, func(s runnerspec.JobSecret) bool { return s.From.OfAWS() })
}
