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

// overrideFile sets the backend. Override files replace the module's own settings.
const overrideFile = "fairlead_backend_override.tf.json"

const (
	dataDir        = ".terraform" // the folder that `init` makes
	dependencyLock = ".terraform.lock.hcl"
)

// writeBackend sets the backend. It overrides a backend that the module sets.
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

// refuseOverrides refuses a module with an override file that sets a backend. The tools read override files in the order
// of their names, so the module's file could override the runner's file and move the state.
func refuseOverrides(src *os.Root) error {
	entries, err := fs.ReadDir(src.FS(), ".")
	if err != nil {
		return fmt.Errorf("read the module: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if name == dataDir {
			return plugin.Errorf(fairlead.ReasonArtifactInvalid, "the module has a %s folder, which only `init` may make; remove it from the source", name)
		}
		if tfmodule.Stem(name) == tfmodule.Stem(overrideFile) { // the module's file could replace the runner's file: .tofu.json precedes .tf.json
			return plugin.Errorf(fairlead.ReasonArtifactInvalid, "the module has the file %s, whose name is reserved for the runner; the runner sets the backend", name)
		}
		if !tfmodule.Override(name) || e.IsDir() {
			continue
		}
		b, err := src.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read the module: %w", err)
		}
		body, _ := tfmodule.Parse(name, b) // the tool reports its errors
		if at, says := tfmodule.Backend(body); says {
			return plugin.Errorf(fairlead.ReasonArtifactInvalid, "the module's override file %s sets a backend in line %d; the runner sets the backend", name, at.Start.Line)
		}
	}
	return nil
}

// checkBackend fails if the tool has another backend than the runner has set: a file of the module or of the plan may have
// changed it.
func (j *job) checkBackend() error {
	kept, err := os.ReadFile(filepath.Join(j.src, dataDir, initState))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the backend: %w", err)
	}
	want := j.state.backend()
	if !hasBackend(kept, want) {
		return plugin.Errorf(fairlead.ReasonBackendElsewhere, "the tool would store the state in another place than the runner's backend %q. Nothing was changed. Find out what in the module sets a backend", want.kind)
	}
	return nil
}

// needsInit reports whether `init` must install something for the module. It returns false only for a simple module: HCL
// only, no child modules, and only resources of the provider that is built into the tool. The result false is wrong if the
// state needs other providers. In this case the tool asks for `init`, and retryWithInit runs `init`.
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
			return true // the tool reports the error better
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

// builtIn reports whether the block needs only the provider that is built into the tool.
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

// snapshot returns the path of the file with the result of `init` for a module that needs nothing installed. The file
// records the backend and is the same for every such module with that backend.
func (j *job) snapshot(b backend) string {
	if b.kind == storageHTTP || b.config["path"] == localPath { // the file is the same for all components
		return filepath.Join(j.tool.facts, "backend-"+b.kind+".json")
	}
	file, _ := b.file() // maps of strings and booleans are always valid JSON
	sum := sha256.Sum256(file)
	return filepath.Join(j.tool.facts, "backends", b.kind+"-"+hex.EncodeToString(sum[:8])+".json")
}

// readySnapshot writes the result of `init` to dir if it is known, and reports whether it did.
func (j *job) readySnapshot(dir string, b backend) (bool, error) {
	known, err := os.ReadFile(j.snapshot(b))
	if err != nil || !hasBackend(known, b) {
		return false, nil
	}
	data := filepath.Join(dir, dataDir)
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, initState), known, 0o600)); err != nil {
		return false, fmt.Errorf("initialize the module: %w", err)
	}
	return true, nil
}

// hasBackend reports whether a snapshot sets exactly this backend and nothing else. The tool trusts the snapshot, but another
// job may have written it. A wrong snapshot could send this job's state to another place.
func hasBackend(snapshot []byte, b backend) bool {
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

// sameConfig compares the configured backend with the intended one. The tool writes null for an unset value, and an empty
// list for a missing block.
func sameConfig(got, want any) bool {
	wantMap, nested := want.(map[string]any)
	gotMap, ok := got.(map[string]any)
	if !nested || !ok {
		return reflect.DeepEqual(got, want)
	}
	for name := range wantMap {
		if _, ok := gotMap[name]; !ok {
			return false
		}
	}
	for name, value := range gotMap {
		if want, ok := wantMap[name]; !ok && !isUnset(value) || ok && !sameConfig(value, want) {
			return false
		}
	}
	return true
}

func isUnset(value any) bool {
	list, ok := value.([]any)
	return value == nil || ok && len(list) == 0
}

// keepSnapshot saves the file that `init` wrote to dir. If keepSnapshot fails, the next job runs `init` again. It removes old
// snapshots, so that there are about as many snapshots as active components.
func (j *job) keepSnapshot(dir string, b backend) {
	made, err := os.ReadFile(filepath.Join(dir, dataDir, initState))
	if err != nil {
		return
	}
	path := j.snapshot(b)
	folder := filepath.Dir(path)
	os.MkdirAll(folder, 0o700)
	safefile.Replace(path, made, 0o600)
	if folder == j.tool.facts {
		return
	}
	workspace.RemoveUnused(folder)
}

// initState is the file in dataDir that records the backend.
const initState = "terraform.tfstate"

// ensure initializes the module, if possible without running the tool. It reports whether `init` ran.
func (j *job) ensure(ctx context.Context) (ran bool, err error) {
	if j.needsNothing {
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
	if err := j.placeModules(); err != nil {
		return err
	}
	if j.planned != nil && j.planned.modules {
		if err := j.unpack(*j.planned); err != nil { // the modules that the plan fetched, as it fetched them
			return err
		}
	}
	over := j.section("init")
	done, err := j.useMirror(ctx)
	if err != nil {
		return err
	}
	defer done()
	err = j.run.do(ctx, "init", func() error {
		return j.run.start(ctx, j.run.stdout, append([]string{"init", "-no-color", "-input=false"}, j.run.variables("init")...)...)
	})
	over(err)
	if err != nil {
		return j.failed(err, fairlead.ReasonInitFailed)
	}
	if err := safefile.Replace(filepath.Join(j.install(), providers.Whole), nil, 0o600); err != nil {
		return fmt.Errorf("record the installed providers: %w", err)
	}
	return j.checkBackend()
}

// section starts a section of the log. The returned function ends it.
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

// installed counts the providers in the lock file and the child modules that `init` recorded. If it cannot read a file, that
// count is 0.
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
	for _, m := range j.installedModules() {
		if m.Key != "" {
			modules++
		}
	}
	return providers, modules
}

// retryWithInit calls f. If f fails, `init` has not run, and the function again returns true for the error, retryWithInit runs
// `init` and calls f once more. The function again reports whether the tool asks for `init` and a second run of f is safe.
func (j *job) retryWithInit(ctx context.Context, ran bool, again func(*toolError) bool, f func() error) error {
	err := f()
	te, ok := errors.AsType[*toolError](err)
	if ran || !ok || ctx.Err() != nil || !again(te) {
		return err
	}
	fmt.Fprintln(j.env.Log, "[fairlead: the tool asks for `init`]")
	if err := os.RemoveAll(filepath.Join(j.src, dataDir)); err != nil {
		return fmt.Errorf("initialize the module: %w", err)
	}
	if err := j.init(ctx); err != nil {
		return err
	}
	return f()
}

// mentionsInit reports whether the tool asks for `init` or quotes a text that asks for `init`. Use mentionsInit only for
// commands that are safe to repeat, such as a plan.
func mentionsInit(e *toolError) bool {
	return strings.Contains(e.stderr, "tofu init") || strings.Contains(e.stderr, "terraform init")
}

// initTitles are parts of the titles of the errors that `init` fixes, of both tools. If a title is missing here, the job
// fails; this has no other effect.
var initTitles = []string{
	"initialization required", // of a backend
	"Backend configuration changed",
	"Required plugins are not installed",
	"there is no package for ", // apply: none of the plan's providers is installed
	"the cached package for ",  // apply: other content than the plan's is installed
	"Inconsistent dependency lock file",
	"Could not load plugin",
	"Module not installed",
	"Module source has changed",
	"Module version requirements have changed",
	"Unreadable module directory",
}

// asksForInit reports whether the tool refused to start because it needs `init`. It trusts the error's title only if the tool
// has announced no change: a provisioner that fails later could quote any error of the tool.
func asksForInit(e *toolError) bool {
	if e.announced {
		return false
	}
	title := firstTitle(e.stderr)
	return slices.ContainsFunc(initTitles, func(t string) bool { return strings.Contains(title, t) })
}

// keepInit moves the result of `init` to the folder of the saved plan, so that the apply uses the same providers without
// another `init`. Only local storage has a place for this result.
func (j *job) keepInit() {
	s, ok := j.state.(*local)
	if !ok {
		return
	}
	dir := filepath.Join(s.plans.Folder(string(j.spec.Job)), "init")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return // the apply runs init
	}
	for _, name := range []string{dependencyLock, dataDir} {
		os.Rename(filepath.Join(j.src, name), filepath.Join(dir, name))
	}
}

// takeInit moves the result of the plan's `init` back to the source folder. It reports whether that succeeded; if not, the
// apply runs `init`.
func (j *job) takeInit() bool {
	s, ok := j.state.(*local)
	if !ok {
		return false
	}
	dir := filepath.Join(s.plans.Folder(string(j.spec.Plan.Job)), "init")
	if _, err := os.Stat(filepath.Join(dir, dataDir)); err != nil {
		return false
	}
	os.Remove(filepath.Join(j.src, dependencyLock))
	os.Rename(filepath.Join(dir, dependencyLock), filepath.Join(j.src, dependencyLock)) // a module may have no lock file
	if err := os.Rename(filepath.Join(dir, dataDir), filepath.Join(j.src, dataDir)); err != nil {
		return false
	}
	return j.relinkProviders() == nil // after an error `init` runs, and reports the problem
}

// lockFromPlan writes the dependency lock file of the plan, which the tool keeps in the plan file. An init for the apply
// must choose the same providers, even if newer versions exist by then.
func (j *job) lockFromPlan(plan []byte) error {
	b, err := memberOf(plan, dependencyLock, maxLockFile)
	if err != nil {
		return nil // the tool reports what is wrong with the plan
	}
	if err := os.WriteFile(filepath.Join(j.src, dependencyLock), b, 0o600); err != nil {
		return fmt.Errorf("write the dependency lock file: %w", err)
	}
	return nil
}

// memberOf returns at most most bytes of a file inside a plan file. An encrypted plan has no readable files.
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

// maxLockFile limits the size of a dependency lock file, in bytes.
const maxLockFile = 8 << 20
