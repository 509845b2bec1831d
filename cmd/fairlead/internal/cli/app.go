package cli

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// pushes is the number of artifacts that are pushed in parallel: enough to hide the
// round trips, few enough for a slow uplink.
const pushes = 4

func (c *cli) app() *cobra.Command {
	return noun("app", "Publish apps", "An app is a folder with the file app.yaml. The file declares the inputs and the\ncomponents of the app. A component is a part of the app, such as a Terraform module.\nAn install gives values to the inputs and deploys the components. A published version\nof an app cannot be changed.",
		c.appValidate(), c.appLock(), c.appBundle(), c.appLoad(), c.appApply(), c.appList(), c.appShow(), c.appVersions(), c.appDiff(), c.appRender(), c.appProvenance(), c.appDelete())
}

func (c *cli) appValidate() *cobra.Command {
	return &cobra.Command{
		Use: "validate DIR", Short: "Report every problem in an app's folder",
		Long: `Reads DIR/app.yaml and the sources of the components. Reports every problem with its
file, line and column. The command also packs the sources, to find every problem that
'fairlead app apply' would find in the folder. It does not call the control plane.`,
		Example: `  fairlead app validate examples/shop
  fairlead app validate . --json | jq '.problems[].message'`,
		ValidArgsFunction: directories,
		RunE: func(_ *cobra.Command, args []string) error {
			root, err := openApp(args[0])
			if err != nil {
				return err
			}
			defer root.Close()
			app, problems := loadApp(root, nil)
			for i := range problems {
				problems[i].Hint = view.Hint(problems[i].Hint, nil)
			}
			doc := view.Validation{Dir: args[0], Problems: problems}
			if app != nil {
				doc.App, doc.Warnings = app.Name, app.RunnerWarnings()
			}
			if err := c.print(doc); err != nil {
				return err
			}
			if len(problems) > 0 {
				return &failure{code: exitInvalid} // the printed result has the problems
			}
			return nil
		},
	}
}

func directories(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// openApp opens the app's folder. Reads through the root cannot leave the folder.
func openApp(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, usage("Name the folder that has app.yaml.", "the app's folder %s cannot be opened: %v", dir, err)
	}
	return root, nil
}

// loadApp reads the app and packs each source, to find all problems. It calls packed with
// each packed source, unless packed is nil. It then discards the packed source, because the
// sources of an app may be larger than memory.
func loadApp(root *os.Root, packed func(appspec.Component, *artifact.Artifact)) (*appspec.App, appspec.Problems) {
	return appspec.Load(root.FS(), func(c appspec.Component, s appspec.Source) error {
		a, err := artifact.PackShared(root, s.Folder, s.Shared, artifact.Limits{})
		if err == nil && packed != nil {
			packed(c, a)
		}
		return err
	})
}

func (c *cli) appApply() *cobra.Command {
	var as string
	cmd := &cobra.Command{
		Use: "apply DIR", Short: "Publish an app's folder as a new version",
		Long: `Validates the app in DIR and packs the source of each component into an OCI artifact.
Then pushes the artifacts that are not yet in the control plane's registry, and
publishes the version. If the folder did not change, the command uploads nothing and
creates no new version.

A runner of your org builds the components whose source is in a git repository, a
repository of charts or a module registry, and the images of components of type
docker-build. The command waits for these builds. A commit, a folder, or a version of a
chart or module, that a recent version of the app has is not built again.

With --as the version gets a name, such as v1.4.0. Every command that takes the ID of
a version also takes a name. A name always means the same content: if another version
of the app has the name, the command exits with code 6 and publishes nothing. A
version can have several names.`,
		Example: `  fairlead app apply examples/hello
  fairlead app apply examples/hello --as v1.4.0
  fairlead app apply . --json | jq -r .id`,
		ValidArgsFunction: directories,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			published, err := c.publish(ctx, cl, args[0], as)
			return published, err
		}),
	}
	cmd.Flags().StringVar(&as, "as", "", "give the version this `NAME`")
	return cmd
}

// publish publishes the app in the folder. The version gets the name as, unless it is "".
func (c *cli) publish(ctx context.Context, cl *client.Client, dir, as string) (view.Published, error) {
	if as != "" {
		if err := fairlead.CheckVersionName(as); err != nil {
			return view.Published{}, err // before anything is pushed
		}
	}
	root, err := openApp(dir)
	if err != nil {
		return view.Published{}, err
	}
	defer root.Close()
	app, problems := loadApp(root, nil)
	if len(problems) > 0 {
		return view.Published{}, invalidApp(dir, problems)
	}
	config, err := app.Canonical()
	if err != nil {
		return view.Published{}, err
	}
	var before *wire.AppVersion
	switch old, err := cl.GetApp(ctx, app.Name); {
	case err == nil:
		before = &old.Version
	case !client.HasCode(err, fairlead.CodeAppNotFound):
		return view.Published{}, err
	}

	digests, err := pushSources(ctx, cl, root, app)
	if err != nil {
		return view.Published{}, err
	}
	folders := map[string]string{} // of the components whose pushed folder a build needs
	for _, comp := range app.Components {
		if comp.Built() && comp.InFolder() {
			folders[comp.Name] = digests[comp.Name]
			delete(digests, comp.Name)
		}
	}
	builds, _, err := c.build(ctx, cl, app, wire.BuildAppRequest{Config: config, Folders: folders})
	if err != nil {
		return view.Published{}, err
	}
	version, err := cl.PublishVersion(ctx, app.Name, wire.PublishVersionRequest{Config: config, Artifacts: digests, Builds: builds, Folders: folders, Name: as})
	if err != nil {
		return view.Published{}, err
	}
	return view.Published{Version: version, Before: before}, nil
}

// pushSources packs and pushes the source of each component and action whose source is in
// the app's folder. It returns the digests by their names among the parts of the app.
func pushSources(ctx context.Context, cl *client.Client, root *os.Root, app *appspec.App) (map[string]string, error) {
	var names []string
	var local []appspec.Component
	for _, part := range app.Parts() {
		if part.InFolder() {
			names, local = append(names, part.Name), append(local, part)
		}
	}
	if len(local) == 0 {
		return map[string]string{}, nil
	}
	open, err := cl.OpenRegistry(ctx, app.Name, names)
	if err != nil {
		return nil, err
	}
	access, err := registryAccess(cl, open)
	if err != nil {
		return nil, err
	}
	digests := make([]string, len(local))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(pushes)
	for i, part := range local {
		g.Go(func() error {
			source, err := appspec.SourceOf(root.FS(), part)
			if err != nil {
				return err
			}
			packed, err := artifact.PackShared(root, source.Folder, source.Shared, artifact.Limits{})
			if err != nil {
				return fmt.Errorf("pack %q: %w", part.Name, err)
			}
			digests[i], err = artifact.Push(ctx, open.Registry+"/"+open.Repositories[part.Name], access, packed)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i, part := range local {
		out[part.Name] = digests[i]
	}
	return out, nil
}

// registryAccess returns the credentials for a push: the registry's own login, or the
// caller's token if there is no such login.
func registryAccess(cl *client.Client, open wire.RegistryAccess) (artifact.Access, error) {
	if open.Login != nil {
		return artifact.Access{Username: open.Login.Username, Password: open.Login.Password}, nil
	}
	u, err := url.Parse(cl.URL())
	if err != nil {
		return artifact.Access{}, fmt.Errorf("parse the control plane's URL: %w", err)
	}
	host, _, err := net.SplitHostPort(open.Registry)
	if err != nil {
		host = open.Registry
	}
	return artifact.Access{
		Token:     cl.Token(),
		Transport: cl.Transport(),
		// With an http:// URL the caller already sends the token to this host
		// without TLS.
		PlainHTTP: u.Scheme == "http" && u.Hostname() == host,
	}, nil
}

// invalidApp returns the failure of a command that needs a valid app.
func invalidApp(dir string, problems appspec.Problems) error {
	e := problems.Err()
	p := local(string(fairlead.CodeOf(e)), "Invalid", e.Error(), fmt.Sprintf("`fairlead app validate %s` explains each problem.", dir))
	if fe, ok := e.(*fairlead.Error); ok {
		p.Detail = fe.Message
	}
	for _, pr := range problems {
		p.Errors = append(p.Errors, wire.FieldError{
			Location: fmt.Sprintf("%s:%d:%d", filepath.Join(dir, filepath.FromSlash(pr.File)), pr.Line, pr.Column),
			Message:  pr.Message,
		})
	}
	return &failure{code: exitInvalid, problem: p}
}

func (c *cli) appList() *cobra.Command {
	return list[view.Apps](c, about{
		short:   "List apps and their newest versions",
		long:    "Lists the apps. For each app, shows the newest version and the components of that\nversion.",
		example: "fairlead app list",
		none:    "There are no apps yet. `fairlead app apply DIR` publishes one.",
	}, (*client.Client).ListApps)
}

func (c *cli) appShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show an app with its inputs and components",
		Long:              "Shows the newest version of an app: its inputs with their types and defaults, and\nits components with their dependencies.",
		Example:           "  fairlead app show hello\n  fairlead app show hello --json | jq -r .version.id",
		ValidArgsFunction: c.names(appNames),
		RunE:              one(c, (*client.Client).GetApp, func(a wire.App) view.Document { return view.App(a) }),
	}
}

func (c *cli) appVersions() *cobra.Command {
	var shown extent
	cmd := &cobra.Command{
		Use: "versions NAME", Short: "List the versions of an app, newest first",
		Long: `Lists the versions of an app. For each version, shows its names, when it was published,
and which installs have components that were applied from that version. To deploy one
of these versions, give its ID or a name to 'fairlead install deploy --version'.`,
		Example: `  fairlead app versions hello
  fairlead install deploy acme --version ver_7cca6d766eef
  fairlead install deploy acme --version v1.4.0`,
		ValidArgsFunction: c.names(appNames),
		RunE: c.call(func(ctx context.Context, cl *client.Client, args []string) error {
			versions, err := pages(ctx, c, shown, versionsOf(cl, args[0]))
			if err != nil {
				return err
			}
			installs, err := pages(ctx, c, extent{}, cl.ListInstalls)
			if err != nil {
				return err
			}
			return listing(c, versions, view.NewVersions(versions, installs), fmt.Sprintf("App %s has no versions. `fairlead app apply DIR` publishes one.", args[0]))
		}),
	}
	newestFlags(cmd, &shown)
	return cmd
}

func versionsOf(cl *client.Client, app string) func(context.Context, client.ListOptions) (wire.Page[wire.AppVersion], error) {
	return func(ctx context.Context, o client.ListOptions) (wire.Page[wire.AppVersion], error) {
		return cl.ListVersions(ctx, app, o)
	}
}
