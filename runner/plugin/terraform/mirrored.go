package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/plugin/terraform/mirror"
)

const (
	mirrorTimeout   = 5 * time.Minute // of one archive
	mirrorTransfers = 4               // archives that are transferred at once
	maxCLIConfig    = 1 << 20         // bytes
)

// cliConfigVariable names the tool's own configuration file.
const cliConfigVariable = "TF_CLI_CONFIG_FILE"

// useMirror unpacks the locked providers where `init` looks for installed ones. It takes each archive from the customer's mirror.
// If an archive is missing there or is not the locked one, the tool downloads it, and useMirror stores it while `init` runs. A
// filesystem mirror in the workspace answers what `init` would ask the registry. The returned function ends the use of the mirror.
//
// A provider that has no entry in the lock file is downloaded by `init`: jobs of all operations write to the customer's mirror,
// so without a locked hash an unapproved plan could choose the program that an apply runs. Problems with the mirror
// delay a job, and do not fail it.
func (j *job) useMirror(ctx context.Context) (done func(), err error) {
	done = func() {}
	config, ok := j.installation()
	if !ok {
		return done, nil
	}
	wanted, err := j.wantedArchives()
	if err != nil || len(wanted) == 0 {
		return done, err
	}
	m, err := j.openMirror()
	if err != nil {
		j.note("the provider mirror is not used: %v", err)
		return done, nil
	}
	a := &archives{job: j, mirror: m, dir: j.path("mirror"), platform: runtime.GOOS + "_" + runtime.GOARCH, have: map[string]bool{}}
	a.fetch(ctx, wanted)
	store := a.download(ctx, slices.DeleteFunc(slices.Clone(wanted), func(l providers.Locked) bool { return a.have[l.Address] }))
	if len(a.have) == 0 {
		return done, nil
	}
	file := j.path("tool.tfrc")
	if err := safefile.Replace(file, append(config, a.installation()...), 0o600); err != nil {
		return done, fmt.Errorf("configure the provider mirror: %w", err)
	}
	env := j.run.env
	j.run.env = maps.Clone(env)
	j.run.env[cliConfigVariable] = file
	stored := make(chan []error, 1)
	go func() { stored <- a.store(ctx, store) }()
	return func() {
		for _, err := range <-stored { // here, because the tool's output goes to the log until now
			j.note("%v", err)
		}
		j.run.env = env
		_ = os.RemoveAll(a.dir) // `init` has used the archives; the workspace is removed after the job
	}, nil
}

// note writes a line of the runner to the job's log.
func (j *job) note(format string, args ...any) {
	fmt.Fprintln(j.env.Log, "[fairlead: "+j.env.Mask(fmt.Sprintf(format, args...))+"]")
}

// installation returns the tool's own configuration. It returns false if the job uses no mirror: none is configured, or the
// operator's configuration itself chooses where the tool installs providers from.
func (j *job) installation() (config []byte, ok bool) {
	if !j.usesMirror() && j.spec.Registry == nil {
		return nil, false
	}
	path := j.run.env[cliConfigVariable]
	if path == "" {
		return nil, true
	}
	b, err := safefile.Read(path, maxCLIConfig)
	if err != nil {
		return nil, false // the tool reports the problem
	}
	f, diags := hclparse.NewParser().ParseHCL(b, path)
	if diags.HasErrors() {
		return nil, false
	}
	body, ok := f.Body.(*hclsyntax.Body)
	if !ok || slices.ContainsFunc(body.Blocks, func(b *hclsyntax.Block) bool { return b.Type == "provider_installation" }) {
		return nil, false
	}
	return append(b, '\n'), true
}

// usesMirror reports whether the customer has a mirror of providers for all apps.
func (j *job) usesMirror() bool { return j.p.cfg.Mirror != (providers.MirrorLocation{}) }

// wantedArchives returns the locked providers that the runner's own cache does not have.
func (j *job) wantedArchives() ([]providers.Locked, error) {
	locked, err := readLock(filepath.Join(j.src, dependencyLock))
	if err != nil {
		return nil, err
	}
	usable, err := j.usableProviders()
	if err != nil {
		return nil, err
	}
	for _, p := range usable {
		delete(locked, p.Address())
	}
	var wanted []providers.Locked
	for _, address := range slices.Sorted(maps.Keys(locked)) {
		if l := locked[address]; len(l.Hashes) > 0 {
			wanted = append(wanted, l)
		}
	}
	return wanted, nil
}

// archives is the filesystem mirror of one job.
type archives struct {
	job      *job
	mirror   mirror.Mirror
	dir      string
	platform string

	mu   sync.Mutex
	have map[string]bool // addresses of the providers whose verified archive is in dir
}

// installation returns the part of the tool's configuration that uses the mirror.
func (a *archives) installation() string {
	list := `["` + strings.Join(slices.Sorted(maps.Keys(a.have)), `", "`) + `"]`
	return fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path    = %q\n    include = %s\n  }\n  direct {\n    exclude = %s\n  }\n}\n", a.dir, list, list)
}

// each runs f for the archive of each provider, some at once, and returns the errors except fs.ErrNotExist. path is the archive's
// place in the job's mirror.
func (a *archives) each(ctx context.Context, list []providers.Locked, f func(ctx context.Context, l providers.Locked, name, path string) error) (failed []error) {
	var g errgroup.Group
	var mu sync.Mutex
	g.SetLimit(mirrorTransfers)
	for _, l := range list {
		name, ok := l.Archive(a.platform)
		if !ok {
			continue // the tool reports the wrong entry
		}
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, mirrorTimeout)
			defer cancel()
			err := f(ctx, l, name, filepath.Join(a.dir, filepath.FromSlash(name)))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Errorf("provider %s %s: %w", l.Address, l.Version, err))
			}
			return nil
		})
	}
	_ = g.Wait() // no function returns an error
	return failed
}

// noted is each, with a line in the job's log for each error.
func (a *archives) noted(ctx context.Context, list []providers.Locked, f func(ctx context.Context, l providers.Locked, name, path string) error) {
	for _, err := range a.each(ctx, list, f) {
		a.job.note("%v", err)
	}
}

// fetch gets the archives that the customer's mirror has.
func (a *archives) fetch(ctx context.Context, list []providers.Locked) {
	a.noted(ctx, list, func(ctx context.Context, l providers.Locked, name, path string) error {
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = a.get(ctx, name, path)
		}
		if err == nil {
			err = a.unpack(l, path)
		}
		if err == nil {
			return nil
		}
		_ = os.Remove(path) // download replaces it
		if errors.Is(err, providers.ErrOtherContent) {
			return fmt.Errorf("the mirror's archive is refused, and is downloaded again: %w", err)
		}
		return err
	})
}

func (a *archives) get(ctx context.Context, name, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(a.mirror.Get(ctx, name, f), f.Close())
}

// unpack installs the provider of an archive if it is the locked one, and records that.
func (a *archives) unpack(l providers.Locked, path string) error {
	err := l.Unpack(path, filepath.Join(a.job.install(), filepath.FromSlash(l.Folder(a.platform))))
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.have[l.Address] = true
	}
	return err
}

// download makes the tool download the archives of providers from their registries. It returns those that the customer's mirror
// should get.
func (a *archives) download(ctx context.Context, list []providers.Locked) (store []providers.Locked) {
	if len(list) == 0 || ctx.Err() != nil {
		return nil
	}
	if err := a.job.mirrorFromRegistry(ctx, list, a.dir, a.platform); err != nil {
		a.job.note("the provider mirror gets no new archive, and `init` downloads it: %v", err)
		return nil
	}
	a.noted(ctx, list, func(_ context.Context, l providers.Locked, _, path string) error { return a.unpack(l, path) })
	return slices.DeleteFunc(list, func(l providers.Locked) bool { return !a.have[l.Address] })
}

// store writes archives to the customer's mirror.
func (a *archives) store(ctx context.Context, list []providers.Locked) []error {
	return a.each(ctx, list, func(ctx context.Context, _ providers.Locked, name, path string) error {
		f, err := os.Open(path)
		if err == nil {
			defer f.Close()
			err = a.mirror.Put(ctx, name, f)
		}
		if err != nil {
			return fmt.Errorf("the archive is not stored, and the next job downloads it again: %w", err)
		}
		return nil
	})
}

// mirrorFromRegistry runs `providers mirror` for exactly these providers, in a folder of its own: the module may use more.
func (j *job) mirrorFromRegistry(ctx context.Context, list []providers.Locked, into, platform string) error {
	type requirement struct {
		Source  string `json:"source"`
		Version string `json:"version"`
	}
	required := map[string]requirement{}
	for i, l := range list {
		if _, ok := l.Archive(platform); ok {
			required[fmt.Sprintf("p%d", i)] = requirement{l.Address, "= " + l.Version}
		}
	}
	b, err := json.Marshal(map[string]any{"terraform": map[string]any{"required_providers": required}})
	if err != nil {
		return err
	}
	dir := j.path("slot-mirror")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "main.tf.json"), b, 0o600), os.MkdirAll(into, 0o700)); err != nil {
		return fmt.Errorf("prepare the download of providers: %w", err)
	}
	r, err := j.newRunner(dir, j.state, j.env.Log)
	if err != nil {
		return err
	}
	defer r.close()
	return r.do(ctx, "providers mirror", func() error {
		return r.start(ctx, r.stdout, "providers", "mirror", "-platform="+platform, into)
	})
}
