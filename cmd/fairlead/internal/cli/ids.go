package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// idLength is that of a whole identifier, without its prefix.
const idLength = 26

// fullVersion returns the identifier of the version of the install's app that
// begins with id. It leaves to the server what is no beginning of one.
func fullVersion(ctx context.Context, cl *client.Client, install, id string) (string, error) {
	digits, ok := strings.CutPrefix(id, "ver_")
	if !ok || len(digits) >= idLength {
		return id, nil
	}
	in, err := cl.GetInstall(ctx, install)
	if err != nil {
		return "", err
	}
	versions, err := client.All(ctx, versionsOf(cl, in.App))
	if err != nil {
		return "", err
	}
	list := "`fairlead app versions " + in.App + "` lists the versions."
	var found []string
	for _, v := range versions {
		if strings.HasPrefix(v.ID, id) {
			found = append(found, v.ID)
		}
	}
	switch {
	case len(digits) < view.ShortID:
		return "", usage(list, "%q is too short for a version: write at least %d characters behind ver_", id, view.ShortID)
	case len(found) == 0:
		return "", usage(list, "app %s has no version that begins with %q", in.App, id)
	case len(found) > 1:
		return "", usage("Write more of one of them.", "%q is the beginning of %d versions: %s", id, len(found), strings.Join(found, ", "))
	}
	return found[0], nil
}

// versionIDs offers the versions of the app of the install that was named.
func (c *cli) versionIDs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.offer(cmd, func(ctx context.Context, cl *client.Client) ([]string, error) {
		in, err := cl.GetInstall(ctx, args[0])
		if err != nil {
			return nil, err
		}
		return offerOf(versionsOf(cl, in.App), func(v wire.AppVersion) (string, string) { return v.ID, "published " + view.Time(v.CreatedAt) })(ctx)
	})
}
