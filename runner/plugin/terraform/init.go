package terraform

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/workspace"
)

// overrideFile sets the backend. Override files replace what the module says.
const overrideFile = "fairlead_backend_override.tf.json"

const (
	dataDir        = ".terraform" // what `init` makes
	dependencyLock = ".terraform.lock.hcl"
)

// writeBackend sets the backend, whatever the module says about its own.
func (j *job) writeBackend(src *os.Root) error {
	if err := refuseOverrides(src); err != nil {
		return err
	}
	b, err := j.state.backend().file()
	if err != nil {
		return fmt.Errorf("set the backend: %w", err)
	}
	if err := src.WriteFile(overrideFile, b, 0o600); err != nil {
		return fmt.Errorf("set the backend: %w", err)
	}
	return nil
}

// refuseOverrides refuses a module with an override file that sets a backend:
// the tools read override files in the order of their names, so it might win
// over ours, and the state would go elsewhere.
func refuseOverrides(src *os.Root) error {
	entries, err := fs.ReadDir(src.FS(), ".")
	if err != nil {
		return fmt.Errorf("look at the module: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if name == dataDir {
			return plugin.Errorf(fairlead.ReasonArtifactInvalid, "the module holds a %s folder, which only `init` may make; leave it out of the source", name)
		}
		if tfmodule.Stem(name) == tfmodule.Stem(overrideFile) { // in its place, perhaps: .tofu.json goes before .tf.json
			return plugin.Errorf(fairlead.ReasonArtifactInvalid, "the module holds the file %s, whose name is the runner's own; the runner sets the backend", name)
		}
		if !tfmodule.Override(name) || e.IsDir() {
			continue
		}
		b, err := src.ReadFile(name)
		if err != nil {
			return fmt.Errorf("look at the module: %w", err)
		}
		body, _ := tfmodule.Parse(name, b) // what is wrong with it the tool says
		if at, says := tfmodule.Backend(body); says {
			return plugin.Errorf(fairlead.ReasonArtifactInvalid, "the module's override file %s says in line %d where the state is; the runner sets the backend", name, at.Start.Line)
		}
	}
	return nil
}

// checkBackend refuses to go on if the tool has another backend than the one that
// was set, whatever in the module, or in what a plan has left, brought that about.
func (j *job) checkBackend() error {
	kept, err := os.ReadFile(filepath.Join(j.src, dataDir, initState))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at the backend: %w", err)
	}
	want := j.state.backend()
	if !leadsTo(kept, want) {
		return plugin.Errorf(fairlead.ReasonBackendElsewhere, "the tool would keep the state elsewhere than this runner does (backend %q, as it was set). Nothing was done. Look for what in the module sets a backend", want.kind)
	}
	return nil
}

// needsInit reports whether the module needs anything installed. It says no
// only to what it fully understands: a module in HCL whose resources are all
// of the provider that is built into the tool, without modules of its own.
// Should it be wrong (the state may know other providers), the tool says so
// and ensure runs init.
func needsInit(src string) bool {
	entries, err := os.ReadDir(src)
	if err != nil {
		return true
	}
	parser := hclparse.NewParser()
	for _, e := range entries {
		name := e.Name()
		switch {
		case e.IsDir() || name == overrideFile || strings.HasSuffix(name, ".tfvars"):
			continue
		case name == dependencyLock, strings.HasSuffix(name, ".tf.json"), strings.HasSuffix(name, ".tofu.json"):
			return true
		case !strings.HasSuffix(name, ".tf") && !strings.HasSuffix(name, ".tofu"):
			continue
		}
		f, diags := parser.ParseHCLFile(filepath.Join(src, name))
		if diags.HasErrors() {
			return true // the tool says it better
		}
		body, ok := f.Body.(*hclsyntax.Body)
		if !ok {
			return true
		}
		for _, b := range body.Blocks {
			if !builtIn(b) {
				return true
			}
		}
	}
	return false
}

func builtIn(b *hclsyntax.Block) bool {
	switch b.Type {
	case "variable", "output", "locals", "moved", "removed":
		return true
	case "resource", "data":
		_, chosen := b.Body.Attributes["provider"]
		return !chosen && len(b.Labels) > 0 && strings.HasPrefix(b.Labels[0], "terraform_")
	case "terraform":
		return len(b.Body.Blocks) == 0
	}
	return false
}

// snapshot is what `init` leaves for a module that needs nothing installed: it
// says which backend is set, and is the same for every such module with that
// backend.
func (j *job) snapshot(b backend) string {
	if b.kind == storageHTTP || b.config["path"] == localPath { // the same for all components
		return filepath.Join(j.tool.known, "backend-"+b.kind+".json")
	}
	file, _ := b.file() // maps of texts and truths always are JSON
	sum := sha256.Sum256(file)
	return filepath.Join(j.tool.known, "backends", b.kind+"-"+hex.EncodeToString(sum[:8])+".json")
}

// readySnapshot lays down in dir what `init` would, if that is known.
func (j *job) readySnapshot(dir string, b backend) (bool, error) {
	known, err := os.ReadFile(j.snapshot(b))
	if err != nil || !leadsTo(known, b) {
		return false, nil
	}
	data := filepath.Join(dir, dataDir)
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, initState), known, 0o600)); err != nil {
		return false, fmt.Errorf("make the module ready: %w", err)
	}
	return true, nil
}

// leadsTo reports whether a snapshot says the backend that is set, and nothing
// else. The tool believes what it says, and another job may have written it: this
// one's state would go where that wants it.
func leadsTo(snapshot []byte, b backend) bool {
	var s struct {
		Version int    `json:"version"`
		Serial  int64  `json:"serial"`
		Lineage string `json:"lineage"`
		Tool    string `json:"terraform_version"`
		Backend struct {
			Type   string `json:"type"`
			Config any    `json:"config"`
			Hash   int64  `json:"hash"`
		} `json:"backend"`
		Modules []struct { // before Terraform 1.9
			Path      []string            `json:"path"`
			Outputs   map[string]struct{} `json:"outputs"`
			Resources map[string]struct{} `json:"resources"`
			DependsOn []struct{}          `json:"depends_on"`
		} `json:"modules"`
	}
	dec := json.NewDecoder(bytes.NewReader(snapshot))
	dec.DisallowUnknownFields()
	if dec.Decode(&s) != nil || s.Backend.Type != b.kind {
		return false
	}
	for _, m := range s.Modules {
		if len(m.Outputs)+len(m.Resources) > 0 {
			return false
		}
	}
	return sameConfig(s.Backend.Config, b.config)
}

// sameConfig compares what is configured with what was to be. The tool writes
// null for what is not set, and an empty list for a block that is not there.
func sameConfig(is, set any) bool {
	wants, nested := set.(map[string]any)
	has, ok := is.(map[string]any)
	if !nested || !ok {
		return reflect.DeepEqual(is, set)
	}
	for name := range wants {
		if _, ok := has[name]; !ok {
			return false
		}
	}
	for name, value := range has {
		if want, ok := wants[name]; !ok && !unset(value) || ok && !sameConfig(value, want) {
			return false
		}
	}
	return true
}

func unset(value any) bool {
	list, ok := value.([]any)
	return value == nil || ok && len(list) == 0
}

// keepSnapshot keeps what `init` has laid down in dir. What cannot be kept is
// made again by the next job. Those that no job has made for long are removed,
// so that there are no more than there are components at work.
func (j *job) keepSnapshot(dir string, b backend) {
	made, err := os.ReadFile(filepath.Join(dir, dataDir, initState))
	if err != nil {
		return
	}
	path := j.snapshot(b)
	folder := filepath.Dir(path)
	os.MkdirAll(folder, 0o700)
	safefile.Replace(path, made, 0o600)
	if folder == j.tool.known {
		return
	}
	workspace.RemoveUnused(folder)
}

// initState is the file in dataDir that says which backend is set.
const initState = "terraform.tfstate"

// ensure makes the module ready, without running the tool if that is possible.
// It reports whether `init` was run.
func (j *job) ensure(ctx context.Context) (ran bool, err error) {
	if j.bare {
		if ready, err := j.readySnapshot(j.src, j.state.backend()); ready || err != nil {
			return false, err
		}
		if err := j.init(ctx); err != nil {
			return true, err
		}
		j.keepSnapshot(j.src, j.state.backend())
		return true, nil
	}
	return true, j.init(ctx)
}

// init runs `init`.
func (j *job) init(ctx context.Context) error {
	if err := j.linkProviders(); err != nil {
		return err
	}
	over := j.section("init")
	err := j.run.do(ctx, "init", func() error {
		return j.run.start(ctx, j.run.stdout, append([]string{"init", "-no-color", "-input=false"}, j.run.variables("init")...)...)
	})
	over(err)
	if err != nil {
		return j.failed(err, fairlead.ReasonInitFailed)
	}
	if err := safefile.Replace(filepath.Join(j.install(), providers.Whole), nil, 0o600); err != nil {
		return fmt.Errorf("keep what was installed: %w", err)
	}
	return j.checkBackend()
}

// section marks a section of the log, which begins now and ends with over.
func (j *job) section(name string) (over func(error)) {
	if j.env.Mark == nil {
		return func(error) {}
	}
	began := time.Now()
	j.env.Mark(wire.LogMark{Section: name})
	return func(err error) {
		m := wire.LogMark{Section: name, End: true, Failed: err != nil, Millis: time.Since(began).Milliseconds()}
		m.Providers, m.Modules = j.installed()
		j.env.Mark(m)
	}
}

// installed counts what the module needs, as init has noted it: providers, which the
// lock file names, and modules. What cannot be read counts as nothing.
func (j *job) installed() (providers, modules int) {
	f, diags := hclparse.NewParser().ParseHCLFile(filepath.Join(j.src, dependencyLock))
	if !diags.HasErrors() {
		if body, ok := f.Body.(*hclsyntax.Body); ok {
			for _, b := range body.Blocks {
				if b.Type == "provider" {
					providers++
				}
			}
		}
	}
	var manifest struct {
		Modules []struct {
			Key string `json:"Key"` // "" is the module itself
		} `json:"Modules"`
	}
	raw, err := os.ReadFile(filepath.Join(j.src, dataDir, "modules", "modules.json"))
	if err != nil || json.Unmarshal(raw, &manifest) != nil {
		return providers, 0
	}
	for _, m := range manifest.Modules {
		if m.Key != "" {
			modules++
		}
	}
	return providers, modules
}

// retryWithInit calls f, and once more after `init` if the tool says that it
// is needed, it was not run, and a second run does no harm. again says so.
func (j *job) retryWithInit(ctx context.Context, ran bool, again func(*toolError) bool, f func() error) error {
	err := f()
	te, ok := errors.AsType[*toolError](err)
	if ran || !ok || ctx.Err() != nil || !again(te) {
		return err
	}
	fmt.Fprintln(j.env.Log, "[fairlead: the tool wants `init` to be run first]")
	if err := os.RemoveAll(filepath.Join(j.src, dataDir)); err != nil {
		return fmt.Errorf("make the module ready: %w", err)
	}
	if err := j.init(ctx); err != nil {
		return err
	}
	return f()
}

// speaksOfInit reports whether the tool asks for `init`, or repeats somebody who
// does. It is for what may be run again in any case, such as a plan.
func speaksOfInit(e *toolError) bool {
	return strings.Contains(e.stderr, "tofu init") || strings.Contains(e.stderr, "terraform init")
}

// initTitles are, in parts, the titles of the errors that `init` mends, of both
// tools. An error whose title is not here fails its job, and nothing else.
var initTitles = []string{
	"initialization required", // of a backend
	"Backend configuration changed",
	"Required plugins are not installed",
	"there is no package for ", // of an apply: nothing is installed that its plan was made with
	"the cached package for ",  // of an apply: something else is
	"Inconsistent dependency lock file",
	"Could not load plugin",
	"Module not installed",
	"Module source has changed",
	"Module version requirements have changed",
	"Unreadable module directory",
}

// wantsInit reports whether the tool has refused to begin for want of `init`.
// That it had not begun is known by its having told of nothing: whoever fails
// while it is at work, a provisioner for one, may quote any error of the tool's.
func wantsInit(e *toolError) bool {
	if e.announced {
		return false
	}
	title := firstTitle(e.stderr)
	return slices.ContainsFunc(initTitles, func(t string) bool { return strings.Contains(title, t) })
}

// carryOut moves what `init` has made beside the saved plan, for the apply: the
// same providers, without another init. Only local storage has such a place.
func (j *job) carryOut() {
	s, ok := j.state.(*local)
	if !ok {
		return
	}
	dir := filepath.Join(s.planDir(string(j.spec.Job)), "init")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return // the apply runs init
	}
	for _, name := range []string{dependencyLock, dataDir} {
		os.Rename(filepath.Join(j.src, name), filepath.Join(dir, name))
	}
}

// carryIn is the reverse of carryOut. It reports whether there was anything.
func (j *job) carryIn() bool {
	s, ok := j.state.(*local)
	if !ok {
		return false
	}
	dir := filepath.Join(s.planDir(string(j.spec.Plan.Job)), "init")
	if _, err := os.Stat(filepath.Join(dir, dataDir)); err != nil {
		return false
	}
	os.Remove(filepath.Join(j.src, dependencyLock))
	os.Rename(filepath.Join(dir, dependencyLock), filepath.Join(j.src, dependencyLock)) // a module may have none
	if err := os.Rename(filepath.Join(dir, dataDir), filepath.Join(j.src, dataDir)); err != nil {
		return false
	}
	return j.relinkProviders() == nil // else `init` is run, and says it
}

// lockFromPlan lays down the dependency lock file that the plan was made with,
// which the tool keeps in the plan: an init for the apply must choose the same
// providers, even if newer ones are out by then.
func (j *job) lockFromPlan(plan []byte) error {
	b, err := memberOf(plan, dependencyLock, maxLockFile)
	if err != nil {
		return nil // the tool says what is wrong with the plan
	}
	if err := os.WriteFile(filepath.Join(j.src, dependencyLock), b, 0o600); err != nil {
		return fmt.Errorf("lay down the dependency lock file: %w", err)
	}
	return nil
}

// memberOf returns what a plan file holds under a name, most bytes of it. A plan that
// is encrypted holds nothing that can be read.
func memberOf(plan []byte, name string, most int64) ([]byte, error) {
	z, err := zip.NewReader(bytes.NewReader(plan), int64(len(plan)))
	if err != nil {
		return nil, fmt.Errorf("read the plan file: %w", err)
	}
	f, err := z.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read %s of the plan file: %w", name, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, fmt.Errorf("read %s of the plan file: %w", name, err)
	}
	return b, nil
}

// maxLockFile is the largest dependency lock file that is read, in bytes.
const maxLockFile = 8 << 20
