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

	"golang.org/x/mod/semver"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/plugin"
)

// tool is the program that plans and applies.
type tool struct {
	path  string // of the program
	known string // folder of what is known of this very program: data, which every job that reads it judges
	kind  kind
}

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

// parseKind reads a tool's answer to `version -json`. It refuses what is no version: a
// kept answer may be torn, or a job's.
func parseKind(answer []byte) (kind, error) {
	var a struct {
		Version  string `json:"terraform_version"`
		Outdated *bool  `json:"terraform_outdated"` // Terraform alone has it
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return kind{}, err
	}
	if !semver.IsValid("v" + a.Version) {
		return kind{}, fmt.Errorf("%q is no version", a.Version)
	}
	return kind{openTofu: a.Outdated == nil, version: "v" + a.Version}, nil
}

// learnVersion learns what the tool says of its version, from what is kept or
// from the tool. What cannot be kept is asked again by the next job.
func (t *tool) learnVersion(ctx context.Context, env map[string]string) error {
	kept := filepath.Join(t.known, "version.json")
	if b, err := os.ReadFile(kept); err == nil {
		if t.kind, err = parseKind(b); err == nil {
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
		t.kind, err = parseKind(out)
	}
	if err != nil {
		return &plugin.Error{Reason: fairlead.ReasonToolMissing, Err: err,
			Message: fmt.Sprintf("%s does not answer to `version -json` as OpenTofu and Terraform do: %v; is FAIRLEAD_TOFU right? %s",
				t.path, err, strings.TrimSpace(stderr.String()))}
	}
	if os.MkdirAll(t.known, 0o700) == nil {
		safefile.Replace(kept, out, 0o600)
	}
	return nil
}

// baseEnv is the environment of the tool besides what the job needs.
func (p *Plugin) baseEnv(home string) map[string]string {
	env := map[string]string{"CHECKPOINT_DISABLE": "1"} // no call home: it would cost a round trip per run
	maps.Copy(env, plugin.BaseEnv(p.env, p.cfg.PassEnv, home))
	if p.cfg.CLIConfig != "" {
		env["TF_CLI_CONFIG_FILE"] = p.cfg.CLIConfig
	}
	return env
}
