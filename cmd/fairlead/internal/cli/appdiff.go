package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func (c *cli) appDiff() *cobra.Command {
	return &cobra.Command{
		Use: "diff NAME A B", Short: "Show the differences of two versions of an app",
		Long: `Shows what differs from A to B: components, with their sources, variables, options and
dependencies; inputs; and what the app uses in the customer's AWS account. A and B are
IDs or names of versions of the app NAME. Each can also be a folder with a '/' in its
path, or '.': the command then compares the app in this folder. It publishes nothing.

A difference of two versions is not what a deployment changes: the plans of an install
show this ('fairlead install deploy --plan-only').`,
		Example: `  fairlead app diff shop v1.3.0 v1.4.0
  fairlead app diff shop v1.4.0 ./shop
  fairlead app diff shop v1.3.0 v1.4.0 --json | jq -r '.changes[].address'`,
		ValidArgsFunction: c.names(appNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			from, err := compared(ctx, cl, args[0], args[1])
			if err != nil {
				return nil, err
			}
			to, err := compared(ctx, cl, args[0], args[2])
			if err != nil {
				return nil, err
			}
			set, err := appspec.Diff(from.app, to.app, from.artifacts, to.artifacts)
			if err != nil {
				return nil, err
			}
			return view.AppDiff{App: args[0], From: from.shown, To: to.shown, Changes: set.Changes, Omitted: set.Omitted}, nil
		}),
	}
}

// comparedApp is an app that is compared with another: a version, or a folder.
type comparedApp struct {
	app       *appspec.App
	artifacts map[string]string // digests by component
	shown     view.ComparedApp
}

// compared returns the version of the app that ref selects, or the app in the folder ref. A text that can neither name a
// version nor begin an identifier is a folder: no name has a slash or begins with a dot.
func compared(ctx context.Context, cl *client.Client, app, ref string) (comparedApp, error) {
	if !fairlead.LooksLikeVersionID(ref) && fairlead.CheckVersionName(ref) != nil {
		return comparedFolder(app, ref)
	}
	ref, err := fullVersionOf(ctx, cl, app, ref)
	if err != nil {
		return comparedApp{}, err
	}
	v, err := cl.GetVersion(ctx, app, ref)
	if err != nil {
		return comparedApp{}, err
	}
	out := comparedApp{artifacts: map[string]string{}, shown: view.ComparedApp{Version: v.ID, Names: v.Names}}
	for _, component := range v.Components {
		out.artifacts[component.Name] = component.Artifact
	}
	if out.app, err = appspec.FromCanonical(v.Config); err != nil {
		return comparedApp{}, fmt.Errorf("read the configuration of version %s: %w", v.ID, err)
	}
	return out, nil
}

// comparedFolder reads the app in the folder, and packs its sources to compute their digests.
func comparedFolder(app, dir string) (comparedApp, error) {
	root, err := openApp(dir)
	if err != nil {
		return comparedApp{}, err
	}
	defer root.Close()
	digests := map[string]string{}
	local, problems := loadApp(root, func(component appspec.Component, packed *artifact.Artifact) {
		digests[component.Name] = packed.Digest()
	})
	if len(problems) > 0 {
		return comparedApp{}, invalidApp(dir, problems)
	}
	if local.Name != app {
		return comparedApp{}, usage(fmt.Sprintf("Compare it with `fairlead app diff %s`.", local.Name), "the folder %s has the app %s, not %s", dir, local.Name, app)
	}
	return comparedApp{app: local, artifacts: digests, shown: view.ComparedApp{Folder: dir}}, nil
}
