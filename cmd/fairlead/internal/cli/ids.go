package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// idLength is the number of characters of a whole identifier, without its prefix.
const idLength = 26

// fullVersion returns the identifier of the version of the install's app that begins
// with id. It returns any other text, such as a name, unchanged: the server checks it.
func fullVersion(ctx context.Context, cl *client.Client, install, id string) (string, error) {
	if !isShortVersion(id) {
		return id, nil
	}
	in, err := cl.GetInstall(ctx, install)
	if err != nil {
		return "", err
	}
	return fullVersionOf(ctx, cl, in.App, id)
}

// isShortVersion reports whether id is the beginning of a version's identifier.
func isShortVersion(id string) bool {
	digits, ok := strings.CutPrefix(id, "ver_")
	return ok && len(digits) < idLength
}

// fullVersionOf returns the identifier of the app's version that begins with id. It
// returns any other text, such as a name, unchanged.
func fullVersionOf(ctx context.Context, cl *client.Client, app, id string) (string, error) {
	if !isShortVersion(id) {
		return id, nil
	}
	digits := strings.TrimPrefix(id, "ver_")
	versions, err := client.All(ctx, versionsOf(cl, app))
	if err != nil {
		return "", err
	}
	list := "`fairlead app versions " + app + "` lists the versions."
	var found []string
	for _, v := range versions {
		if strings.HasPrefix(v.ID, id) {
			found = append(found, v.ID)
		}
	}
	switch {
	case len(digits) < view.ShortID:
		return "", usage(list, "%q is too short for a version: write at least %d characters after ver_", id, view.ShortID)
	case len(found) == 0:
		return "", usage(list, "app %s has no version that begins with %q", app, id)
	case len(found) > 1:
		return "", usage("Write more characters of the identifier.", "%q is the beginning of %d versions: %s", id, len(found), strings.Join(found, ", "))
	}
	return found[0], nil
}

// fullDeployment returns the identifier of the deployment that begins with id.
func fullDeployment(ctx context.Context, cl *client.Client, id string) (string, error) {
	return fullID(id, "dep_", "deployment", func() (wire.Page[wire.Deployment], error) {
		return cl.ListDeployments(ctx, client.DeploymentFilter{ID: id}, client.ListOptions{Limit: 2})
	}, func(d wire.Deployment) string { return d.ID })
}

// fullJob returns the identifier of the job that begins with id.
func fullJob(ctx context.Context, cl *client.Client, id string) (string, error) {
	return fullID(id, "job_", "job", func() (wire.Page[wire.Job], error) {
		return cl.ListJobs(ctx, client.JobFilter{ID: id}, client.ListOptions{Limit: 2})
	}, func(j wire.Job) string { return j.ID })
}

// fullID completes the beginning of an identifier if it is unique. It returns a whole
// identifier, or another text, unchanged: the server checks it.
func fullID[T any](id, prefix, noun string, list func() (wire.Page[T], error), of func(T) string) (string, error) {
	digits, ok := strings.CutPrefix(id, prefix)
	if !ok || digits == "" || len(digits) >= idLength {
		return id, nil
	}
	page, err := list()
	if err != nil || len(page.Items) == 0 {
		return id, err
	}
	if len(page.Items) > 1 {
		return "", usage("Write more characters of the identifier.", "%q is the beginning of several %ss, such as %s and %s", id, noun, of(page.Items[0]), of(page.Items[1]))
	}
	return of(page.Items[0]), nil
}

// whole returns a RunE for a command whose first argument is an identifier or the
// beginning of an identifier. The parameter full completes the beginning.
func (c *cli) whole(full func(context.Context, *client.Client, string) (string, error),
	run func(context.Context, *client.Client, []string) error) func(*cobra.Command, []string) error {
	return c.call(func(ctx context.Context, cl *client.Client, args []string) error {
		id, err := full(ctx, cl, args[0])
		if err != nil {
			return err
		}
		return run(ctx, cl, append([]string{id}, args[1:]...))
	})
}

// deploymentStates returns the states for the filter of a list.
func deploymentStates() []string {
	return []string{"queued", "running", "awaiting-approval", "canceling", "succeeded", "failed", "canceled"}
}

// versionIDs completes the versions of the app of the install in the first argument.
func (c *cli) versionIDs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.offer(cmd, func(ctx context.Context, cl *client.Client) ([]string, error) {
		in, err := cl.GetInstall(ctx, args[0])
		if err != nil {
			return nil, err
		}
		versions := func(cl *client.Client, ctx context.Context, o client.ListOptions) (wire.Page[wire.AppVersion], error) {
			return versionsOf(cl, in.App)(ctx, o)
		}
		return offerOf(versions, func(v wire.AppVersion) (string, string) {
			published := "published " + view.Time(v.CreatedAt)
			if len(v.Names) > 0 {
				return v.Names[len(v.Names)-1], published + ", " + v.ID
			}
			return v.ID, published
		})(ctx, cl)
	})
}
