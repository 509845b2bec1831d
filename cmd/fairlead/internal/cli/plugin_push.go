package cli

import (
	"context"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/artifact"
)

func (c *cli) pluginPush() *cobra.Command {
	return &cobra.Command{
		Use: "push FOLDER oci://HOST/PATH/NAME[:TAG]", Short: "Publish a plugin in an OCI registry",
		Long: `Packs FOLDER, which has the executable file plugin at its top, pushes it to an OCI
registry, and prints the lines of app.yaml that name it by its digest. The same files
always have the same digest. The login is that of "docker login" for the registry. It
calls no control plane.

Without a TAG the artifact has no tag. A registry can delete artifacts without tags.`,
		Example: `  fairlead plugin push greeting oci://ghcr.io/acme/plugins/greeting:v1`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			pushed, err := c.pushPlugin(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			return c.print(pushed)
		},
	}
}

// pushPlugin packs the folder and pushes it to the repository of the URL.
func (c *cli) pushPlugin(ctx context.Context, folder, url string) (view.PushedPlugin, error) {
	var out view.PushedPlugin
	address, ok := strings.CutPrefix(url, "oci://")
	repository, tag := address, ""
	if i := strings.LastIndexByte(address, ':'); i > strings.LastIndexByte(address, '/') {
		repository, tag = address[:i], address[i+1:]
	}
	repo, err := name.NewRepository(repository, name.StrictValidation)
	if err == nil && tag != "" {
		_, err = name.NewTag(address, name.StrictValidation)
	}
	if !ok || err != nil {
		return out, usage("Write oci://HOST/PATH/NAME or oci://HOST/PATH/NAME:TAG.", "%q is not a repository in an OCI registry", url)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return out, usage("Name the folder that has the plugin.", "the folder %s cannot be read: %v", folder, err)
	}
	defer root.Close()
	if problems := appspec.CheckPlugin(root.FS()); len(problems) > 0 {
		return out, usage("The program's file must have the name \"plugin\", at the top of the folder, and be executable.", "the folder %s has no plugin", folder)
	}
	packed, err := artifact.Pack(root, artifact.Limits{})
	if err != nil {
		return out, err
	}
	login, err := authn.Resolve(ctx, authn.DefaultKeychain, repo.Registry)
	if err != nil {
		return out, usage("Run `docker login` for the registry again.", "the login for %s cannot be read: %v", repo.RegistryStr(), err)
	}
	auth, err := login.Authorization()
	if err != nil {
		return out, usage("Run `docker login` for the registry again.", "the login for %s cannot be read: %v", repo.RegistryStr(), err)
	}
	access := artifact.Access{Token: auth.RegistryToken, Username: auth.Username, Password: auth.Password}
	digest, err := artifact.Push(ctx, repository, access, packed)
	if err == nil && tag != "" {
		err = artifact.Tag(ctx, repository, access, digest, tag)
	}
	return view.PushedPlugin{URL: "oci://" + repository, Digest: digest, Tag: tag}, err
}
