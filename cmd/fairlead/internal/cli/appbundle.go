package cli

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/safefile"
)

func (c *cli) appBundle() *cobra.Command {
	var version, mirror string
	cmd := &cobra.Command{
		Use: "bundle NAME", Short: "List everything that an install of an app fetches, by digest",
		Long: `Lists everything that an install of a version fetches: the artifact of each component and
action, the images of the lock, and the providers in the lock files of modules. Each has
its digest, or its hashes. Below the list are the parts that no lock names, so an install
can fetch anything for them. The command reads artifacts and starts no job.

With --mirror, it copies the images of the lock to the repository PREFIX/mirror of a
registry, with everything that refers to them, such as signatures. If this registry is
that of an install, with the same prefix, its jobs copy the images from there. They then
need no other registry. The logins to registries are those of your Docker configuration.`,
		Example: `  fairlead app bundle shop
  fairlead app bundle shop --version v1.4.0 --json | jq '.items[] | {kind, name, digest}'
  fairlead app bundle shop --mirror https://registry.customer.example.com/acme`,
		ValidArgsFunction: c.names(appNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			target, err := mirrorOf(mirror)
			if err != nil {
				return nil, err
			}
			ref, err := versionOrNewest(ctx, cl, args[0], version)
			if err != nil {
				return nil, err
			}
			v, err := cl.GetVersion(ctx, args[0], ref)
			if err != nil {
				return nil, err
			}
			b, lock, err := readBundle(ctx, cl, v)
			if err != nil || mirror == "" {
				return b, err
			}
			if b.Mirror, err = c.mirror(ctx, lock, target); err != nil {
				return nil, err
			}
			return b, nil
		}),
	}
	cmd.Flags().StringVar(&version, "version", "", "list what this `VERSION` fetches, an ID or a name from 'fairlead app versions' (default: the newest version)")
	cmd.Flags().StringVar(&mirror, "mirror", "", "copy the images to this registry: `URL`/PREFIX")
	return cmd
}

// mirrorOf returns where the copies of images go; the zero CopyRequest for "".
func mirrorOf(text string) (bundle.CopyRequest, error) {
	if text == "" {
		return bundle.CopyRequest{}, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return bundle.CopyRequest{}, usage("Write it as registry.url and registry.prefix of the runner's configuration have it, such as https://registry.example.com/acme.", "%q is not the URL of a registry", text)
	}
	return bundle.CopyRequest{Registry: u.Scheme + "://" + u.Host, Repository: path.Join(strings.Trim(u.Path, "/"), bundle.Mirror)}, nil
}

// mirror copies the images of the lock, and returns the reference of the index of the copies.
func (c *cli) mirror(ctx context.Context, lock *bundle.Lock, target bundle.CopyRequest) (string, error) {
	if lock == nil {
		return "", usage("Make the app closed with `bundle: {}` in app.yaml.", "the version is not closed, so no lock names its images")
	}
	target.Images = lock.Images
	var answer bundle.CopyAnswer
	if err := c.ask(ctx, appspec.BundleProgram(), bundle.Copied, target, &answer); err != nil {
		return "", err
	}
	if answer.Error != "" {
		return "", &failure{code: exitFailed, problem: local("mirror-failed", "Not mirrored", "the images cannot be copied: "+answer.Error, "")}
	}
	return answer.Reference, nil
}

// readBundle reads the artifacts of a version. lock is nil if the version is not closed.
func readBundle(ctx context.Context, cl *client.Client, v wire.AppVersion) (out view.Bundle, lock *bundle.Lock, err error) {
	app, err := appspec.FromCanonical(v.Config)
	if err != nil {
		return view.Bundle{}, nil, fmt.Errorf("read the configuration of version %s: %w", v.ID, err)
	}
	digests := map[string]string{}
	for _, part := range v.Components {
		digests[part.Name] = part.Artifact
	}
	for _, action := range v.Actions {
		digests[appspec.ActionPrefix+action.Name] = action.Artifact
	}
	folders, err := pullParts(ctx, cl, app, digests)
	if err != nil {
		return view.Bundle{}, nil, err
	}
	defer folders.remove()
	out = view.Bundle{App: v.App, Version: v.ID, Names: v.Names, Closed: app.Closed(), Items: []view.BundleItem{}, Open: []string{}}
	for _, part := range app.Parts() {
		out.Items = append(out.Items, view.BundleItem{Kind: "artifact", Name: part.Name, Digest: digests[part.Name], UsedBy: []string{part.Name}})
		if app.CopiesBundle(part) {
			if lock, err = readLock(folders.of(part.Name)); err != nil {
				return view.Bundle{}, nil, fmt.Errorf("read the lock of version %s: %w", v.ID, err)
			}
		}
		providers, found, err := appspec.Providers(os.DirFS(folders.of(part.Name)), part)
		if err != nil {
			return view.Bundle{}, nil, fmt.Errorf("read the providers of component %s: %w", part.Name, err)
		}
		if !found {
			out.Open = append(out.Open, fmt.Sprintf("component %s has no .terraform.lock.hcl: it can use any version of its providers", part.Name))
		}
		for _, p := range providers {
			out.AddProvider(part.Name, p)
		}
	}
	if lock == nil {
		for _, part := range app.Locked() {
			out.Open = append(out.Open, fmt.Sprintf("the images of component %s are not locked: the app is not closed", part.Name))
		}
		return out, nil, nil
	}
	for _, i := range lock.Images {
		out.Items = append(out.Items, view.BundleItem{Kind: "image", Name: i.Reference, Digest: i.Digest, Bytes: i.Bytes, Platforms: i.Platforms, UsedBy: i.UsedBy})
	}
	return out, lock, nil
}

// readLock reads the lock in a folder.
func readLock(dir string) (*bundle.Lock, error) {
	text, err := safefile.Read(filepath.Join(dir, bundle.File), bundle.MaxFile)
	if err != nil {
		return nil, err
	}
	lock, problems := bundle.Read(bundle.File, text)
	if len(problems) > 0 {
		return nil, appspec.Problems(problems)
	}
	return &lock, nil
}

// parts are folders with the files of parts of an app.
type parts struct{ dir string }

func (p parts) of(name string) string { return filepath.Join(p.dir, name) }

func (p parts) remove() {
	if p.dir != "" {
		os.RemoveAll(p.dir) // what is left in the folder of temporary files is no harm
	}
}

// builtRepository ends the names of the repositories of artifacts that builds make.
const builtRepository = "/built"

// pullParts pulls the artifacts of parts of an app.
func pullParts(ctx context.Context, cl *client.Client, app *appspec.App, digests map[string]string) (out parts, err error) {
	if len(digests) == 0 {
		return parts{}, nil
	}
	var names []string
	for name := range digests {
		names = append(names, name)
	}
	slices.Sort(names)
	open, err := cl.OpenRegistry(ctx, app.Name, names)
	if err != nil {
		return parts{}, err
	}
	access, err := registryAccess(cl, open)
	if err != nil {
		return parts{}, err
	}
	if out.dir, err = os.MkdirTemp("", "fairlead-bundle-"); err != nil {
		return parts{}, fmt.Errorf("make a folder for the artifacts: %w", err)
	}
	for _, name := range names {
		repository := open.Repositories[name]
		if part, _ := app.Component(name); part.Built() {
			repository += builtRepository
		}
		if err := pullPart(ctx, open.Registry+"/"+repository+"@"+digests[name], access, out.of(name)); err != nil {
			out.remove()
			return parts{}, fmt.Errorf("pull the artifact of %s: %w", name, err)
		}
	}
	return out, nil
}

func pullPart(ctx context.Context, reference string, access artifact.Access, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return artifact.Pull(ctx, reference, access, root, artifact.Limits{})
}

// onlyBuilt returns the app with only the sources of the locked components that a build fetches, so that a build for the lock makes
// nothing else, such as an image from a Dockerfile.
func onlyBuilt(app *appspec.App) *appspec.App {
	out := &appspec.App{Name: app.Name}
	for _, c := range app.Locked() {
		if c.Built() {
			out.Components = append(out.Components, appspec.Component{Name: c.Name, Type: c.Type, Source: c.Source, Git: c.Git, Chart: c.Chart, Module: c.Module, OCI: c.OCI})
		}
	}
	return out
}

// fetchBuilt returns the files of those components of a closed app that a build fetches. It builds those that no version has.
func (c *cli) fetchBuilt(ctx context.Context, app *appspec.App) (parts, error) {
	if !slices.ContainsFunc(app.Locked(), appspec.Component.Built) {
		return parts{}, nil
	}
	cl, err := c.client()
	if err != nil {
		return parts{}, err
	}
	needed := onlyBuilt(app)
	config, err := needed.Canonical()
	if err != nil {
		return parts{}, err
	}
	jobs, earlier, err := c.build(ctx, cl, needed, wire.BuildAppRequest{Config: config})
	if err != nil {
		return parts{}, err
	}
	digests := map[string]string{}
	for _, part := range app.Locked() {
		if !part.Built() {
			continue
		}
		digests[part.Name] = earlier[part.Name]
		if id, ok := jobs[part.Name]; ok {
			j, err := cl.GetJob(ctx, id)
			if err != nil {
				return parts{}, err
			}
			if j.Build != nil {
				digests[part.Name] = j.Build.Artifact
			}
		}
	}
	return pullParts(ctx, cl, app, digests)
}
