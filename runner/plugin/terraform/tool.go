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

// tool is the program that plans and applies.
type tool struct {
	path    string // of the program
	known   string // folder of what is known of this very program: data, which every job that reads it judges
	version string // what it answers to `version -json`, on one line
	kind    kind
}

// shell runs the launcher. It is on every system but the barest containers.
const shell = "/bin/sh"

// pidVariable names the file that the launcher writes the tool's process number to.
const pidVariable = "FAIRLEAD_TOOL_PID"

// findTool returns the tool. What is known of a program is kept under its path,
// size and time of change: another program is another tool.
func (p *Plugin) findTool(ctx context.Context) (*tool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tool != nil {
		return p.tool, nil
	}
	path, err := p.lookUp()
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonToolMissing, Err: err,
			Message: fmt.Sprintf("%s cannot be used on this runner: %v", path, errors.Unwrap(err))}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "1\n%s\n%d\n%d", path, st.Size(), st.ModTime().UnixNano()))
	t := &tool{path: path, known: filepath.Join(p.cfg.Data, "tools", hex.EncodeToString(sum[:8]))}
	if err := t.learnVersion(ctx, p.baseEnv("/")); err != nil {
		return nil, err
	}
	p.tool = t
	return t, nil
}

func (p *Plugin) lookUp() (string, error) {
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

// toolVersion is what of a tool's answer to `version -json` is kept.
type toolVersion struct {
	Version   string            `json:"terraform_version"`
	Platform  string            `json:"platform,omitempty"`
	Providers map[string]string `json:"provider_selections"`          // none: they are a module's
	Outdated  *bool             `json:"terraform_outdated,omitempty"` // Terraform alone says it
}

// parseAnswer returns the answer on one line, without what is not of the tool
// alone. It refuses what is no version: a kept answer may be torn, or a job's.
func parseAnswer(b []byte) (line string, k kind, err error) {
	var a toolVersion
	if err := json.Unmarshal(b, &a); err != nil {
		return "", kind{}, err
	}
	if !semver.IsValid("v" + a.Version) {
		return "", kind{}, fmt.Errorf("%q is no version", a.Version)
	}
	a.Providers = map[string]string{}
	text, err := json.Marshal(a)
	return string(text), kind{openTofu: a.Outdated == nil, version: "v" + a.Version}, err
}

// learnVersion learns what the tool says of its version, from what is kept or
// from the tool. What cannot be kept is asked again by the next job.
func (t *tool) learnVersion(ctx context.Context, env map[string]string) error {
	kept := filepath.Join(t.known, "version.json")
	if b, err := os.ReadFile(kept); err == nil {
		if t.version, t.kind, err = parseAnswer(b); err == nil {
			return nil
		}
	}
	cmd := exec.CommandContext(ctx, t.path, "version", "-json")
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Dir = os.TempDir() // where no module is
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
			Message: fmt.Sprintf("%s does not answer to `version -json` as OpenTofu and Terraform do: %v; is FAIRLEAD_TOFU right? %s",
				t.path, err, strings.TrimSpace(stderr.String()))}
	}
	if os.MkdirAll(t.known, 0o700) == nil {
		safefile.Replace(kept, []byte(t.version), 0o600)
	}
	return nil
}

// makeLauncher makes, in a job's own folder, the script that terraform-exec
// starts in the tool's place, and returns its path. It answers `version`, which
// terraform-exec asks in every process before anything else, with what the tool
// has said once; for everything else it notes its process number and becomes
// the tool. Without a shell the tool is started as it is.
//
// It is never one that another job could have written: it would run in this one.
func (t *tool) makeLauncher(dir string) (string, error) {
	if _, err := os.Stat(shell); err != nil {
		return t.path, nil
	}
	path := filepath.Join(dir, "launcher")
	script := "#!" + shell + "\n" + `[ "$1" = version ] && { printf '%s\n' ` + quoteShell(t.version) + "; exit 0; }\n" +
		`[ -n "$` + pidVariable + `" ] && echo $$ >"$` + pidVariable + `"` + "\nexec " + quoteShell(t.path) + ` "$@"` + "\n"
	// A process that is forked while the file is open for writing has it open, too,
	// for a moment, and the kernel starts no program that is being written.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		return "", fmt.Errorf("make the launcher of %s: %w", t.path, err)
	}
	return path, nil
}

func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// baseEnv is the environment of the tool besides what the job needs.
func (p *Plugin) baseEnv(home string) map[string]string {
	env := map[string]string{"CHECKPOINT_DISABLE": "1"} // no call home: it would cost a round trip per run
	maps.Copy(env, plugin.BaseEnv(p.env, p.cfg.PassEnv, home))
	if p.cfg.CLIConfig != "" {
		env["TF_CLI_CONFIG_FILE"] = p.cfg.CLIConfig
	}
	return env
}
