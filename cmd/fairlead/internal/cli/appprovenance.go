package cli

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/safefile"
)

func (c *cli) appProvenance() *cobra.Command {
	var version, out, keyOut string
	cmd := &cobra.Command{
		Use: "provenance NAME COMPONENT", Short: "Show what a component's artifact was built from",
		Long: `Shows the provenance of a component that a build made: the commit or chart, the build
runner, the job and the times. The control plane has signed it, and the step of each
job verifies it before it uses the artifact.

With --out the command also writes the signed statement to a file, as a DSSE envelope
of in-toto. With --key-out it writes the public key of the signature, in PEM. Other
tools verify the file with the key: cosign, or any implementation of DSSE.`,
		Example: `  fairlead app provenance shop web
  fairlead app provenance shop web --version v1.4.0 --out web.json --key-out key.pem
  fairlead app provenance shop web --json | jq -r '.envelope.payload | @base64d'`,
		ValidArgsFunction: c.names(appNames),
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			ref, err := versionOrNewest(ctx, cl, args[0], version)
			if err != nil {
				return nil, err
			}
			p, err := cl.GetProvenance(ctx, args[0], ref, args[1])
			if err != nil {
				return nil, err
			}
			if out != "" {
				if err := safefile.Write(out, append(p.Envelope, '\n'), 0o644); err != nil {
					return nil, fmt.Errorf("write the provenance: %w", err)
				}
			}
			if keyOut != "" {
				if err := writeSigner(ctx, cl, p.KeyID, keyOut); err != nil {
					return nil, err
				}
			}
			return view.Provenance(p), nil
		}),
	}
	cmd.Flags().StringVar(&version, "version", "", "show this `VERSION`, an ID or a name from 'fairlead app versions' (default: the newest version)")
	cmd.Flags().StringVar(&out, "out", "", "write the signed statement to this `FILE`")
	cmd.Flags().StringVar(&keyOut, "key-out", "", "write the public key of the signature to this `FILE`")
	return cmd
}

// versionOrNewest returns the version of the app that ref selects; the newest if ref is "".
func versionOrNewest(ctx context.Context, cl *client.Client, app, ref string) (string, error) {
	if ref != "" {
		return fullVersionOf(ctx, cl, app, ref)
	}
	a, err := cl.GetApp(ctx, app)
	return a.Version.ID, err
}

// writeSigner writes the public key of the control plane that signed the provenance.
func writeSigner(ctx context.Context, cl *client.Client, id, file string) error {
	meta, err := cl.Meta(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(meta.Keys, func(k wire.VerificationKey) bool { return k.ID == id })
	if i < 0 {
		return fmt.Errorf("the control plane verified the provenance with key %s, but does not publish the key", id)
	}
	der, err := x509.MarshalPKIXPublicKey(ed25519.PublicKey(meta.Keys[i].PublicKey))
	if err != nil {
		return fmt.Errorf("encode the public key: %w", err)
	}
	if err := safefile.Write(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644); err != nil {
		return fmt.Errorf("write the public key: %w", err)
	}
	return nil
}
