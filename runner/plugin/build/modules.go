package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/runner/plugin"
)

// The limits of the modules of one component.
const (
	maxModuleArchive = 64 << 20 // bytes of a module's archive
	maxModules       = 1000     // calls, of modules of all kinds
	maxModuleDepth   = 20       // calls within each other; a module that calls itself has no end
	// modulesFor bounds the time in which all modules are fetched.
	modulesFor = 15 * time.Minute
)

// modules fetches the modules of other places that a component calls, each package once.
type modules struct {
	plugin  *Plugin
	spec    plugin.Spec
	env     plugin.Env
	fetcher fetcher
	dir     string // has a folder for each package, and then tfmodule.ShippedFile

	located map[wanted]located
	fetched map[tfmodule.Source]pkg
	calls   int
	shipped tfmodule.Shipped
	opened  []*os.Root
}

// close closes the packages.
func (m *modules) close() {
	for _, r := range m.opened {
		r.Close() // only read
	}
}

// wanted is a module in a registry with the constraint on its version.
type wanted struct {
	module     tfmodule.Source // without a folder
	constraint string
}

// pkg is what was fetched from one source. A module can call others of its package by path.
type pkg struct {
	name string // of its folder
	root fs.FS
}

func (p *Plugin) modules(spec plugin.Spec, env plugin.Env) *modules {
	return &modules{plugin: p, spec: spec, env: env, fetcher: p.fetcher(spec, env), dir: filepath.Join(env.Workspace, "modules"),
		located: map[wanted]located{}, fetched: map[tfmodule.Source]pkg{}}
}

// component writes the files of the package of the registry's module that the spec names to the empty folder. It returns
// the commit or digest of the package, and the module's folder in it.
func (m *modules) component(ctx context.Context, folder string) (revision, inside string, err error) {
	from := m.spec.Build.From
	s, err := tfmodule.ParseSource(from.URL)
	if err != nil || s.Kind != tfmodule.FromRegistry {
		return "", "", plugin.Errorf(fairlead.ReasonSpecInvalid, "%.200q is not the address of a module in a registry", from.URL)
	}
	fmt.Fprintf(m.env.Log, "fetching module %s %s\n", from.URL, from.Ref)
	found, err := m.fetcher.locate(ctx, s, "= "+from.Ref)
	if err != nil {
		return "", "", err
	}
	if revision, err = m.fetch(ctx, found.at, folder); err != nil {
		return "", "", err
	}
	inside, err = expand(folder, found.at.Folder)
	return revision, inside, err
}

// fetch writes the files of a source in git or of an archive to the empty folder. It returns the commit or the archive's
// digest.
func (m *modules) fetch(ctx context.Context, s tfmodule.Source, folder string) (revision string, err error) {
	if s.Kind == tfmodule.FromGit {
		ref := s.Ref
		if ref == "" {
			ref = "HEAD"
		}
		return git{plugin: m.plugin, spec: m.spec, env: m.env, folder: folder, url: s.Address, ref: ref}.fetch(ctx)
	}
	at, err := url.Parse(s.Address)
	if err != nil {
		return "", unavailable(err, "%.200q is not a URL", s.Address)
	}
	what := "the module's archive on " + at.Host // the rest of the URL may be a signature
	content, err := m.fetcher.get(ctx, at, maxModuleArchive)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	if err != nil {
		return "", unavailable(err, "%s cannot be fetched: %v", what, err)
	}
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	if s.SHA256 != "" && s.SHA256 != digest {
		return "", plugin.Errorf(fairlead.ReasonSourceInvalid, "%s has the digest %s, and its source names %s", what, digest, s.SHA256)
	}
	a := archive{what: what, format: s.Format, content: content}
	return "sha256:" + digest, a.unpack(folder)
}

// collect fetches all modules that the module in the folder of the component's source calls.
func (m *modules) collect(ctx context.Context, source fs.FS, folder string) error {
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return fmt.Errorf("create the workspace: %w", err)
	}
	if err := m.walk(ctx, nil, pkg{root: source}, folder); err != nil {
		return err
	}
	content, err := m.shipped.Encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(m.dir, tfmodule.ShippedFile), content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("list the modules: %w", err)
	}
	return nil
}

// walk fetches the modules that the module in the folder of the package calls. names are the calls from the component to
// this module.
func (m *modules) walk(ctx context.Context, names []string, in pkg, folder string) error {
	for _, c := range appspec.ModuleCalls(in.root, folder) {
		key := append(names[:len(names):len(names)], c.Name)
		shown := strings.Join(key, ".")
		m.calls++
		switch {
		case !hclsyntax.ValidIdentifier(c.Name):
			continue // the tool reports it
		case m.calls > maxModules:
			return plugin.Errorf(fairlead.ReasonSourceInvalid, "the component calls more than %d modules, with those that its modules call", maxModules)
		case len(key) > maxModuleDepth:
			return plugin.Errorf(fairlead.ReasonSourceInvalid, "the calls of modules are nested more than %d deep: module %.200s", maxModuleDepth, shown)
		}
		s, err := tfmodule.ParseSource(c.Source)
		if err != nil {
			return plugin.Errorf(fairlead.ReasonSourceInvalid, "a build cannot fetch the source %.200q of module %s: %v. Call it by an address in a registry, git::https://…, or the https URL of an archive", c.Source, shown, err)
		}
		to, at := in, path.Join(folder, s.Folder)
		if s.Kind != tfmodule.FromPath {
			if to, at, err = m.remote(ctx, shown, c, s); err != nil {
				return err
			}
		}
		if info, err := fs.Stat(to.root, at); !fs.ValidPath(at) || err != nil || !info.IsDir() {
			return plugin.Errorf(fairlead.ReasonSourceInvalid, "the source %.200q of module %s has no folder %.200q", c.Source, shown, at)
		}
		before := len(m.shipped.Modules)
		if s.Kind == tfmodule.FromPath {
			m.shipped.Modules = append(m.shipped.Modules, tfmodule.ShippedModule{Key: shown, Source: c.Source, Folder: at})
		}
		if err := m.walk(ctx, key, to, at); err != nil {
			return err
		}
		if s.Kind == tfmodule.FromPath && len(m.shipped.Modules) == before+1 {
			m.shipped.Modules = m.shipped.Modules[:before] // it calls no module of another place
		}
	}
	return nil
}

// remote fetches the module of a call, unless its package was fetched already, and records the call. It returns the package
// and the module's folder in it.
func (m *modules) remote(ctx context.Context, key string, c tfmodule.Call, s tfmodule.Source) (in pkg, folder string, err error) {
	at, version := s, ""
	if s.Kind == tfmodule.FromRegistry {
		want := wanted{s.Package(), c.Version}
		found, ok := m.located[want]
		if !ok {
			if found, err = m.fetcher.locate(ctx, s, c.Version); err != nil {
				return pkg{}, "", inModule(key, err)
			}
			m.located[want] = found
		}
		at, version = found.at, found.version
	}
	in, ok := m.fetched[at.Package()]
	if !ok {
		name := strconv.Itoa(len(m.fetched))
		dir := filepath.Join(m.dir, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return pkg{}, "", fmt.Errorf("create the workspace: %w", err)
		}
		revision, err := m.fetch(ctx, at, dir)
		if err != nil {
			return pkg{}, "", inModule(key, err)
		}
		fmt.Fprintf(m.env.Log, "fetched module %s: %s\n", key, strings.TrimSpace(c.Source+" "+version+" "+revision))
		root, err := os.OpenRoot(dir) // its links lead to no file outside of it
		if err != nil {
			return pkg{}, "", fmt.Errorf("open a module: %w", err)
		}
		m.opened = append(m.opened, root)
		in = pkg{name: name, root: root.FS()}
		m.fetched[at.Package()] = in
	}
	folder, err = expand(filepath.Join(m.dir, in.name), at.Folder)
	if err != nil {
		return pkg{}, "", inModule(key, err)
	}
	if s.Kind == tfmodule.FromRegistry {
		folder = path.Join(folder, s.Folder)
	}
	m.shipped.Modules = append(m.shipped.Modules, tfmodule.ShippedModule{Key: key, Source: c.Source, Version: version, Package: in.name, Folder: folder})
	return in, folder, nil
}

// inModule adds the module's name to the message of a typed failure.
func inModule(key string, err error) error {
	if e, ok := errors.AsType[*plugin.Error](err); ok {
		return &plugin.Error{Reason: e.Reason, Message: "module " + key + ": " + e.Message, Err: e.Err}
	}
	return err
}

// within runs fetch in a limited time. An error because of the limit is a typed one, and that of a canceled job is not.
func within(ctx context.Context, limit time.Duration, fetch func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := fetch(bounded)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("fetch the source: %w", ctx.Err())
	}
	if err != nil && bounded.Err() != nil {
		return unavailable(err, "the source was not fetched within %s", limit)
	}
	return err
}
