package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/profile"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/pkg/transport"
)

// copyFlags are where the copy of a bundle goes.
type copyFlags struct {
	mirror, ca, login string
}

func (f *copyFlags) register(c *cli, cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.mirror, "mirror", "", "copy everything to this registry: `URL`/PREFIX")
	cmd.Flags().StringVar(&f.ca, "mirror-ca", "", "trust the CA certificates in this PEM `FILE` for the registry of --mirror")
	cmd.Flags().StringVar(&f.login, "mirror-login", "", "the environment `VARIABLE` with the login to the registry of --mirror: USER:PASSWORD, or a Docker configuration (default: your Docker configuration)")
	c.must(cmd.MarkFlagFilename("mirror-ca"))
}

// request returns where the copy goes; the zero CopyRequest without --mirror.
func (f *copyFlags) request(getenv func(string) string) (bundle.CopyRequest, error) {
	if f.mirror == "" {
		if f.ca+f.login != "" {
			return bundle.CopyRequest{}, usage("Add --mirror with the URL of the registry.", "--mirror-ca and --mirror-login are for the registry of --mirror")
		}
		return bundle.CopyRequest{}, nil
	}
	u, err := url.Parse(f.mirror)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return bundle.CopyRequest{}, usage("Write it as registry.url and registry.prefix of the runner's configuration have it, such as https://registry.example.com/acme.", "%q is not the URL of a registry", f.mirror)
	}
	req := bundle.CopyRequest{Registry: u.Scheme + "://" + u.Host, Repository: path.Join(strings.Trim(u.Path, "/"), bundle.Mirror)}
	if f.login != "" {
		if req.Login = getenv(f.login); req.Login == "" {
			return bundle.CopyRequest{}, usage("Set it to USER:PASSWORD, or to a Docker configuration.", "the environment variable %s of --mirror-login is not set", f.login)
		}
	}
	if f.ca != "" {
		if req.CA, err = authorities(f.ca); err != nil {
			return bundle.CopyRequest{}, usage("Use a PEM file of CA certificates for --mirror-ca.", "%v", err)
		}
	}
	return req, nil
}

// authorities returns the text of a file of CA certificates.
func authorities(file string) (string, error) {
	if _, err := transport.ReadCA(file); err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	return string(text), err
}

func (c *cli) appBundle() *cobra.Command {
	var version, out, providers string
	var platforms []string
	var to copyFlags
	cmd := &cobra.Command{
		Use: "bundle NAME", Short: "List and export what an install of an app fetches, by digest",
		Long: `Lists everything that an install of a version fetches: the artifact of each component and
action, the images of the lock, and the providers in the lock files of modules. Each has
its digest, or its hashes. Below the list are the parts that no lock names, so an install
can fetch anything for them. The command reads artifacts and starts no job.

With --out, it writes everything into an image layout of OCI: a folder, or one file if the
name ends with .tar. Images have all platforms and everything that refers to them, such as
signatures. An index names each object with its kind, name, digest and users. 'fairlead app
load' copies the layout into a registry.

With --mirror, it copies everything to the repository PREFIX/mirror of a registry. If this
registry is that of an install, with the same prefix, its jobs take images and providers
from there. They then need no other registry.

Archives of providers come from the registry that their address names, and are compared with
the lock file of the module. The variable TF_TOKEN_HOST has the token for a registry, as
OpenTofu reads it. The logins to registries of images are those of your Docker configuration.`,
		Example: `  fairlead app bundle shop
  fairlead app bundle shop --version v1.4.0 --json | jq '.items[] | {kind, name, digest}'
  fairlead app bundle shop --out shop.tar
  fairlead app bundle shop --mirror https://registry.customer.example.com/acme`,
		ValidArgsFunction: c.names(appNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			target, err := to.request(c.env.Getenv)
			if err != nil {
				return nil, err
			}
			if out != "" && to.mirror != "" {
				return nil, usage("Run the command twice, or use `fairlead app load` for the file.", "--out and --mirror cannot be combined")
			}
			ref, err := versionOrNewest(ctx, cl, args[0], version)
			if err != nil {
				return nil, err
			}
			v, err := cl.GetVersion(ctx, args[0], ref)
			if err != nil {
				return nil, err
			}
			b, err := readBundle(ctx, cl, v)
			if err != nil || out == "" && to.mirror == "" {
				return b.list, err
			}
			if !b.list.Closed {
				return nil, usage("Make the app closed with `bundle: {}` in app.yaml.", "the version is not closed, so no lock names its images")
			}
			target.Bundle, target.Host, target.Platforms = b.whole, b.host, platforms
			if target.Host.CA, err = c.controlPlaneCA(); err != nil {
				return nil, err
			}
			if target.Providers, err = absolute(providers); err != nil {
				return nil, err
			}
			if out != "" {
				err = c.export(ctx, out, target, &b.list)
			} else {
				err = c.copyBundle(ctx, target, &b.list.Copied)
			}
			return b.list, err
		}),
	}
	cmd.Flags().StringVar(&version, "version", "", "list what this `VERSION` fetches, an ID or a name from 'fairlead app versions' (default: the newest version)")
	cmd.Flags().StringVar(&out, "out", "", "write everything to this `FILE` ending with .tar, or to this new folder")
	cmd.Flags().StringVar(&providers, "providers", "", "take archives of providers from this `FOLDER`, which 'tofu providers mirror' writes, before the registries")
	cmd.Flags().StringSliceVar(&platforms, "platform", []string{"linux/amd64", "linux/arm64"}, "the `PLATFORM` of runners, for archives of providers")
	to.register(c, cmd)
	return cmd
}

func (c *cli) appLoad() *cobra.Command {
	var to copyFlags
	cmd := &cobra.Command{
		Use: "load FILE", Short: "Copy an exported app into a registry",
		Long: `Copies everything that 'fairlead app bundle --out' has written, a file or a folder, to the
repository PREFIX/mirror of a registry, with the same digests. It asks neither the control
plane nor another registry, so it works on the customer's side of a closed network.`,
		Example: `  fairlead app load shop.tar --mirror https://registry.customer.example.com/acme
  fairlead app load shop.tar --mirror https://10.0.0.5:5000/acme --mirror-ca ca.pem --mirror-login LOGIN`,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := to.request(c.env.Getenv)
			if err != nil {
				return err
			}
			if to.mirror == "" {
				return usage("Add --mirror with the URL of the registry.", "the command needs a registry to copy to")
			}
			var out view.Copied
			err = withLayout(args[0], func(dir string) error {
				target.From = dir
				return c.copyBundle(cmd.Context(), target, &out)
			})
			if err != nil {
				return err
			}
			return c.print(out)
		},
	}
	to.register(c, cmd)
	return cmd
}

// controlPlaneCA returns the CA certificates for the control plane; "": those that the machine trusts.
func (c *cli) controlPlaneCA() (string, error) {
	target, err := profile.Resolve(c.flags, c.env.Getenv)
	if err != nil || target.CAFile == "" {
		return "", err
	}
	return authorities(target.CAFile)
}

// absolute returns the absolute path of a folder; "" for "".
func absolute(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	return filepath.Abs(dir)
}

// copyBundle copies a bundle, and describes the copy.
func (c *cli) copyBundle(ctx context.Context, req bundle.CopyRequest, out *view.Copied) error {
	var answer bundle.CopyAnswer
	if err := c.ask(ctx, appspec.BundleProgram(), bundle.Copied, req, &answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return &failure{code: exitFailed, problem: local("copy-failed", "Not copied", "the bundle cannot be copied: "+answer.Error, "")}
	}
	*out = view.NewCopied(answer)
	return nil
}

// export writes a bundle to a folder, or to a file that ends with .tar.
func (c *cli) export(ctx context.Context, out string, req bundle.CopyRequest, list *view.Bundle) error {
	dir, packed := out, strings.HasSuffix(out, archiveEnding)
	if _, err := os.Lstat(out); err == nil {
		return usage("Choose another name, or remove it.", "%s exists already", out)
	}
	var err error
	if packed {
		dir, err = os.MkdirTemp(filepath.Dir(out), ".fairlead-bundle-")
	} else {
		err = os.Mkdir(dir, 0o777)
	}
	if err != nil {
		return fmt.Errorf("make the folder of the bundle: %w", err)
	}
	if req.Layout, err = filepath.Abs(dir); err != nil {
		return err
	}
	err = c.copyBundle(ctx, req, &list.Copied)
	if err == nil && packed {
		err = packLayout(dir, out)
	}
	if err != nil || packed {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	list.Copied.File = out
	return err
}

// bundled is what an install of a version fetches, to list it and to copy it.
type bundled struct {
	list  view.Bundle
	whole bundle.Bundle
	host  bundle.Host // the registry of the artifacts
}

// readBundle reads the artifacts of a version.
func readBundle(ctx context.Context, cl *client.Client, v wire.AppVersion) (bundled, error) {
	app, err := appspec.FromCanonical(v.Config)
	if err != nil {
		return bundled{}, fmt.Errorf("read the configuration of version %s: %w", v.ID, err)
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
		return bundled{}, err
	}
	defer folders.remove()
	var lock *bundle.Lock
	out := view.Bundle{App: v.App, Version: v.ID, Names: v.Names, Closed: app.Closed(), Items: []view.BundleItem{}, Open: []string{}}
	for _, part := range app.Parts() {
		out.Items = append(out.Items, view.BundleItem{Kind: string(bundle.Artifact), Name: part.Name, Digest: digests[part.Name], UsedBy: []string{part.Name}})
		if app.CopiesBundle(part) {
			if lock, err = readLock(folders.of(part.Name)); err != nil {
				return bundled{}, fmt.Errorf("read the lock of version %s: %w", v.ID, err)
			}
		}
		providers, found, err := appspec.Providers(os.DirFS(folders.of(part.Name)), part)
		if err != nil {
			return bundled{}, fmt.Errorf("read the providers of component %s: %w", part.Name, err)
		}
		if !found {
			out.Open = append(out.Open, fmt.Sprintf("component %s has no .terraform.lock.hcl: it can use any version of its providers", part.Name))
		}
		for _, p := range providers {
			out.AddProvider(part.Name, p)
		}
	}
	whole := bundle.Bundle{App: v.App, Version: v.ID}
	for _, item := range out.Items {
		whole.Items = append(whole.Items, bundle.Item{Kind: bundle.Kind(item.Kind), Name: item.Name, Version: item.Version, Digest: item.Digest, Hashes: item.Hashes, From: folders.from[item.Name], UsedBy: item.UsedBy})
	}
	if lock == nil {
		for _, part := range app.Locked() {
			out.Open = append(out.Open, fmt.Sprintf("the images of component %s are not locked: the app is not closed", part.Name))
		}
		return bundled{out, whole, folders.host}, nil
	}
	whole.Images = lock.Images
	for _, i := range lock.Images {
		out.Items = append(out.Items, view.BundleItem{Kind: string(bundle.Locked), Name: i.Reference, Digest: i.Digest, Bytes: i.Bytes, Platforms: i.Platforms, UsedBy: i.UsedBy})
	}
	return bundled{out, whole, folders.host}, nil
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
type parts struct {
	dir  string
	from map[string]string // the repositories of the artifacts, with their registry
	host bundle.Host       // the registry
}

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
	if out.host, err = registryHost(cl, open, access); err != nil {
		return parts{}, err
	}
	out.from = map[string]string{}
	if out.dir, err = os.MkdirTemp("", "fairlead-bundle-"); err != nil {
		return parts{}, fmt.Errorf("make a folder for the artifacts: %w", err)
	}
	for _, name := range names {
		repository := open.Repositories[name]
		part, _ := app.Component(name)
		if image, ok := open.Images[name]; ok && part.Build != nil {
			repository = image
		} else if part.Built() {
			repository += builtRepository
		}
		out.from[name] = open.Registry + "/" + repository
		if part.Build != nil {
			continue // its artifact is an image
		}
		if err := pullPart(ctx, out.from[name]+"@"+digests[name], access, out.of(name)); err != nil {
			out.remove()
			return parts{}, fmt.Errorf("pull the artifact of %s: %w", name, err)
		}
	}
	return out, nil
}

// registryHost returns the registry of artifacts, as a program of a plugin reaches it.
func registryHost(cl *client.Client, open wire.RegistryAccess, access artifact.Access) (bundle.Host, error) {
	if open.Login != nil {
		return bundle.Host{URL: "https://" + open.Registry, Username: access.Username, Password: access.Password}, nil
	}
	u, err := url.Parse(cl.URL())
	if err != nil {
		return bundle.Host{}, fmt.Errorf("parse the control plane's URL: %w", err)
	}
	// The control plane's own registry takes a token as the password of any name.
	return bundle.Host{URL: u.Scheme + "://" + open.Registry, Username: "token", Password: cl.Token()}, nil
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
