package terraform

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/mod/semver"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/plugin"
)

// tool is the program that plans and applies: OpenTofu or Terraform.
type tool struct {
	path    string // of the program
	facts   string // folder with facts about this program; other jobs can write there, so every job verifies what it reads
	version string // the tool's answer to `version -json`, on one line
	kind    kind
}

// shell runs the launcher. Every system has it except minimal containers.
const shell = "/bin/sh"

// pidVariable names the file that the launcher writes the tool's process number to.
const pidVariable = "FAIRLEAD_TOOL_PID"

// findTool returns the tool. Facts about a program are stored under a digest of its path, size and modification time, so
// that a changed program counts as another tool.
func (p *Plugin) findTool(ctx context.Context) (*tool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tool != nil {
		return p.tool, nil
	}
	path, err := p.findProgram()
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonToolMissing, Err: err,
			Message: fmt.Sprintf("%s cannot be used on this runner: %v", path, errors.Unwrap(err))}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "1\n%s\n%d\n%d", path, st.Size(), st.ModTime().UnixNano()))
	t := &tool{path: path, facts: filepath.Join(p.cfg.Data, "tools", hex.EncodeToString(sum[:8]))}
	if err := t.learnVersion(ctx, p.baseEnv("/")); err != nil {
		return nil, err
	}
	p.tool = t
	return t, nil
}

// findProgram returns the absolute path of the tool.
func (p *Plugin) findProgram() (string, error) {
	if p.cfg.Tool != "" {
		path, err := exec.LookPath(p.cfg.Tool)
		if err != nil {
			return "", &plugin.Error{Reason: fairlead.ReasonToolMissing, Err: err,
				Message: fmt.Sprintf("there is no program %s on this runner; set FAIRLEAD_TOFU to the path of OpenTofu or Terraform", p.cfg.Tool)}
		}
		return filepath.Abs(path)
	}
	for _, name := range []string{"tofu", "terraform"} {
		for _, dir := range filepath.SplitList(p.env["PATH"]) {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(path) {
				return path, nil
			}
		}
	}
	return "", plugin.Errorf(fairlead.ReasonToolMissing,
		"neither tofu nor terraform is on this runner's PATH; install one, or set FAIRLEAD_TOFU to its path")
}

// toolVersion is the stored part of a tool's answer to `version -json`.
type toolVersion struct {
	Version   string            `json:"terraform_version"`
	Platform  string            `json:"platform,omitempty"`
	Providers map[string]string `json:"provider_selections"`          // always empty here: they belong to a module
	Outdated  *bool             `json:"terraform_outdated,omitempty"` // only Terraform sets it
}

// parseAnswer returns the answer on one line, reduced to facts about the tool alone. It refuses an invalid version: a
// stored answer may be incomplete, or written by a job.
func parseAnswer(b []byte) (line string, k kind, err error) {
	var a toolVersion
	if err := json.Unmarshal(b, &a); err != nil {
		return "", kind{}, err
	}
	if !semver.IsValid("v" + a.Version) {
		return "", kind{}, fmt.Errorf("%q is not a version", a.Version)
	}
	a.Providers = map[string]string{}
	text, err := json.Marshal(a)
	return string(text), kind{openTofu: a.Outdated == nil, version: "v" + a.Version}, err
}

// learnVersion sets the tool's version, from the stored answer or from the tool. If the answer cannot be stored, the next
// job asks the tool again.
func (t *tool) learnVersion(ctx context.Context, env map[string]string) error {
	kept := filepath.Join(t.facts, "version.json")
	if b, err := os.ReadFile(kept); err == nil {
		if t.version, t.kind, err = parseAnswer(b); err == nil {
			return nil
		}
	}
	cmd := exec.CommandContext(ctx, t.path, "version", "-json")
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Dir = os.TempDir() // a folder without a module
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return fmt.Errorf("ask %s for its version: %w", t.path, ctx.Err())
	}
	if err == nil {
		t.version, t.kind, err = parseAnswer(out)
	}
	if err != nil {
		return &plugin.Error{Reason: fairlead.ReasonToolMissing, Err: err,
			Message: fmt.Sprintf("%s does not answer `version -json` like OpenTofu or Terraform: %v; check FAIRLEAD_TOFU. %s",
				t.path, err, strings.TrimSpace(stderr.String()))}
	}
	if os.MkdirAll(t.facts, 0o700) == nil {
		safefile.Replace(kept, []byte(t.version), 0o600)
	}
	return nil
}

// makeLauncher writes the script that terraform-exec starts in place of the tool, in a job's own folder, and returns the
// script's path. Every process that uses terraform-exec asks for `version` first; the script answers with the stored version.
// For every other command the script writes its process number and executes the tool. Without a shell, makeLauncher returns the tool's path.
//
// The script is new for every job: a script that another job could have written would run code of that job in this one.
func (t *tool) makeLauncher(dir string) (string, error) {
	if _, err := os.Stat(shell); err != nil {
		return t.path, nil
	}
	path := filepath.Join(dir, "launcher")
	script := "#!" + shell + "\n" + `[ "$1" = version ] && { printf '%s\n' ` + quoteShell(t.version) + "; exit 0; }\n" +
		`[ -n "$` + pidVariable + `" ] && echo $$ >"$` + pidVariable + `"` + "\nexec " + quoteShell(t.path) + ` "$@"` + "\n"
	// A process that is forked while the file is open for writing inherits the open file for a moment, and the kernel
	// refuses to execute a file that is open for writing.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		return "", fmt.Errorf("write the launcher of %s: %w", t.path, err)
	}
	return path, nil
}

func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// baseEnv returns the part of the tool's environment that does not depend on the job.
func (p *Plugin) baseEnv(home string) map[string]string {
	env := map[string]string{"CHECKPOINT_DISABLE": "1"} // no update check: it would cost a round trip per run
	maps.Copy(env, plugin.BaseEnv(p.env, p.cfg.PassEnv, home))
	if p.cfg.CLIConfig != "" {
		env["TF_CLI_CONFIG_FILE"] = p.cfg.CLIConfig
	}
	return env
}
