package cli

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/approval"
)

func (c *cli) keys() *cobra.Command {
	return noun("keys", "List, rotate and revoke signing keys, for operators",
		`A runner runs only jobs that a key of the control plane signed. It trusts two keys: one signs
jobs, the spare key signs each change of the keys. So installed runners follow a change at
their next job. For a short time a third key is valid: the one that signed before.`,
		c.keysList(), c.keysRotate(), c.keysRevoke())
}

func (c *cli) keysList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the keys that runners trust",
		Long:    "Lists the keys that runners trust, and what each signs.",
		Example: "  fairlead keys list",
		Args:    cobra.NoArgs,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, _ []string) (view.Document, error) {
			keys, err := cl.ListKeys(ctx)
			return view.SigningKeys(keys), err
		}),
	}
}

// elsewhere are the flags for keys that the control plane does not have.
type elsewhere struct {
	with []string
	next string
}

func (e *elsewhere) register(c *cli, cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&e.with, "sign-with", nil, "sign the change with this `KEY`: a file with a private key in PEM, or awskms:ARN")
	cmd.Flags().StringVar(&e.next, "new-key", "", "the new spare `KEY`: a file with its private key in PEM, or awskms:ARN")
	c.must(cmd.MarkFlagFilename("sign-with"))
	c.must(cmd.MarkFlagFilename("new-key"))
}

const elsewhereHelp = `
A control plane on AWS cannot use its spare key. Name the key with --sign-with, and the new
spare key with --new-key. Your own AWS credentials sign the change. The first change of a
control plane is also signed by the key that signs jobs: give --sign-with twice.`

func (c *cli) keysRotate() *cobra.Command {
	var e elsewhere
	cmd := &cobra.Command{
		Use: "rotate", Short: "Let the spare key sign jobs, and make a new spare key",
		Long: `Lets the spare key sign jobs, and makes a new spare key. The key that signed until now
remains valid until you revoke it. Runners need no change: they follow at their next job.
` + elsewhereHelp,
		Example: "  fairlead keys rotate\n  fairlead keys rotate --sign-with awskms:ARN_OF_SPARE --sign-with awskms:ARN_OF_FIRST --new-key awskms:ARN_OF_NEW",
		Args:    cobra.NoArgs,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, _ []string) (view.Document, error) {
			keys, err := c.changeKeys(ctx, cl, e, cl.RotateKeys, func(s events.KeySet, next ed25519.PublicKey) (events.KeySet, error) {
				return s.Rotated(next, c.env.Now())
			})
			return view.Rotated(keys), err
		}),
	}
	e.register(c, cmd)
	return cmd
}

func (c *cli) keysRevoke() *cobra.Command {
	var e elsewhere
	var yes bool
	cmd := &cobra.Command{
		Use: "revoke KEY", Short: "Remove a key from those that runners trust",
		Long: `Removes a key from those that runners trust. If it signs jobs, the next key does from now on. A
new spare key is made if none would remain. Components that a build made while the key
signed are refused afterwards: publish their apps again.
` + elsewhereHelp,
		Example: "  fairlead keys revoke 5f1c0a9e3b7d2468",
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if err := c.confirm(ctx, yes, args[0], "Runners will refuse all that key %s signed.", args[0]); err != nil {
				return nil, err
			}
			revoke := func(ctx context.Context) (wire.Keys, error) { return cl.RevokeKey(ctx, args[0]) }
			keys, err := c.changeKeys(ctx, cl, e, revoke, func(s events.KeySet, next ed25519.PublicKey) (events.KeySet, error) {
				if next == nil && s.NeedsKey(args[0]) {
					return s, usage("", "without key %s there is no spare key: name the new one with --new-key", args[0])
				}
				return s.Revoked(args[0], next, c.env.Now())
			})
			return view.Done(keys, "Runners trust key %s no more", args[0]), err
		}),
	}
	e.register(c, cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

// changeKeys lets the control plane change its keys, or signs the change with the keys of the flags.
func (c *cli) changeKeys(ctx context.Context, cl *client.Client, e elsewhere, there func(context.Context) (wire.Keys, error), next func(events.KeySet, ed25519.PublicKey) (events.KeySet, error)) (wire.Keys, error) {
	if len(e.with) == 0 {
		if e.next != "" {
			return wire.Keys{}, usage("", "--new-key needs --sign-with: the control plane makes its own spare key")
		}
		return there(ctx)
	}
	keys, err := cl.ListKeys(ctx)
	if err != nil {
		return wire.Keys{}, err
	}
	set := events.KeySet{V: 1, Number: keys.Number}
	for _, k := range keys.Keys {
		set.Keys = append(set.Keys, events.Key(k.PublicKey))
	}
	for _, ids := range keys.After {
		set.After = append(set.After, ids)
	}
	var spare ed25519.PublicKey
	if e.next != "" {
		if _, spare, err = c.signingKey(ctx, e.next); err != nil {
			return wire.Keys{}, err
		}
	}
	change, err := next(set, spare)
	if err != nil {
		return wire.Keys{}, err
	}
	var signers []*events.Signer
	for _, ref := range e.with {
		key, public, err := c.signingKey(ctx, ref)
		if err != nil {
			return wire.Keys{}, err
		}
		signers = append(signers, events.NewRemoteSigner(public, key.Sign))
	}
	envelope, err := events.SignKeySet(ctx, change, signers...)
	if err != nil {
		return wire.Keys{}, err
	}
	return cl.PutKeySet(ctx, wire.PutKeySetRequest{Envelope: envelope})
}

// signingKey opens a key of --sign-with or --new-key.
func (c *cli) signingKey(ctx context.Context, ref string) (approval.Signer, ed25519.PublicKey, error) {
	key, err := c.approvalKey(ctx, ref)
	if err != nil {
		return nil, nil, fmt.Errorf("open the key %s: %w", ref, err)
	}
	public, ok := key.Public().Ed25519()
	if !ok {
		return nil, nil, usage("", "the key %s is not an Ed25519 key", ref)
	}
	return key, public, nil
}
