package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/approval"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/ledger/record"
)

// maxKeyFile is the size of the largest key file, in bytes.
const maxKeyFile = 16 << 10

func (c *cli) approve() *cobra.Command {
	var key string
	var valid time.Duration
	var yes bool
	progress := progressFlags{attached: true}
	cmd := &cobra.Command{
		Use: "approve DEPLOYMENT COMPONENT", Short: "Sign the approval of a plan with a key of the customer",
		Long: `Shows the plan of a component, asks for confirmation, and signs an approval of exactly
this plan with a key of the customer. The runner in the customer's account derives the
plan's changes again from the saved plan and compares them with what was signed. So the
control plane can neither apply another plan nor apply this one twice.

The customer's policy says which plans need a signature, and names the public keys.
--key is a private key in PEM (` + "`fairlead approval new-key`" + `), or awskms: and the ARN of a
signing key in AWS KMS (ECC_NIST_P256 or ECC_NIST_EDWARDS25519).`,
		Example: `  fairlead approve dep_01kahq database --key approval.pem
  fairlead approve dep_01kahq database --key awskms:arn:aws:kms:eu-central-1:111122223333:key/4f0c`,
		Args:              exactly,
		ValidArgsFunction: c.names(deploymentIDs),
		RunE: c.whole(fullDeployment, func(ctx context.Context, cl *client.Client, args []string) error {
			signer, err := c.approvalKey(ctx, key)
			if err != nil {
				return err
			}
			d, err := c.signApproval(ctx, cl, args[0], args[1], signer, valid, yes)
			if err != nil {
				return err
			}
			return c.see(ctx, cl, d, progress)
		}),
	}
	cmd.Flags().StringVar(&key, "key", "", "`FILE` with a private key in PEM, or awskms:ARN")
	cmd.Flags().DurationVar(&valid, "valid", time.Hour, "how long the approval is valid, at most 168h")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	c.must(cmd.MarkFlagRequired("key"))
	progress.register(cmd)
	return cmd
}

// approvalKey opens the key that --key names.
func (c *cli) approvalKey(ctx context.Context, ref string) (approval.Signer, error) {
	if id, ok := strings.CutPrefix(ref, "awskms:"); ok {
		if c.env.KMSKey == nil {
			return nil, c.lacks("cannot reach AWS")
		}
		return c.env.KMSKey(ctx, id)
	}
	text, err := c.readFile(ref, "key", maxKeyFile)
	if err != nil {
		return nil, err
	}
	return approval.ParseKey(text)
}

// signApproval shows the plan of a component, and approves it with a signature.
func (c *cli) signApproval(ctx context.Context, cl *client.Client, id, component string, key approval.Signer, valid time.Duration, yes bool) (wire.Deployment, error) {
	d, err := cl.GetDeployment(ctx, id)
	if err != nil {
		return wire.Deployment{}, err
	}
	var node wire.DeploymentComponent
	for _, n := range d.Components {
		if n.Name == component {
			node = n
		}
	}
	switch {
	case node.Name == "":
		return wire.Deployment{}, usage("", "deployment %s has no component %q", id, component)
	case node.State != "awaiting-approval":
		return wire.Deployment{}, usage("", "component %s is %s: no plan of it waits for approval", component, node.State)
	}
	install, err := cl.GetInstall(ctx, d.Install)
	if err != nil {
		return wire.Deployment{}, err
	}
	j, err := cl.GetJob(ctx, node.PlanJob)
	if err != nil {
		return wire.Deployment{}, err
	}
	switch {
	case j.Plan == nil || j.Plan.ChangeSet == nil || j.Plan.Artifact == "":
		return wire.Deployment{}, usage("Update the runner and plan again.", "the runner did not report what an approval needs to name")
	case j.Plan.Digest != node.Plan:
		return wire.Deployment{}, &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodePlanChanged,
			Message: fmt.Sprintf("component %s has a newer plan than the one that was read", component), Hint: "Run the command again."}
	}
	digest, err := approval.SetDigest(j.Plan.ChangeSet)
	if err != nil {
		return wire.Deployment{}, err
	}
	operation, ok := applyOf(j.Operation)
	if !ok {
		return wire.Deployment{}, usage("", "job %s is %s, and has no plan to apply", j.ID, j.Operation)
	}
	now := c.env.Now()
	a := approval.Plan{V: 1, ID: strings.ToLower(rand.Text()), IssuedAt: approval.At(now), ExpiresAt: approval.At(now.Add(valid)),
		Subject: approval.Subject{Install: fairlead.InstallID(install.ID), Component: component, Operation: operation, Artifact: j.Plan.Artifact, ChangeSet: digest, Plan: j.Plan.Digest}}
	a.SetBase(j.Plan.ChangeSet.Base)

	for _, line := range (view.Plan{Component: component, Plan: *j.Plan}).Lines(c.errStyle()) {
		c.say("%s", line)
	}
	c.say("Signed with key %s:", key.Public().ID())
	if err := c.confirm(ctx, yes, component, "This approves the %s of component %s of install %s (%s), plan %s, until %s.",
		operation, component, install.Name, install.ID, a.Subject.Plan, view.Time(a.ExpiresAt.Time)); err != nil {
		return wire.Deployment{}, err
	}
	envelope, err := a.Sign(ctx, key)
	if err != nil {
		return wire.Deployment{}, err
	}
	return cl.ApproveDeployment(ctx, id, wire.ApproveRequest{Plans: map[string]string{component: j.Plan.Digest}, Signatures: map[string][]byte{component: envelope}})
}

// applyOf returns the operation that applies the plan of an operation.
func applyOf(plan string) (string, bool) {
	switch plan {
	case "plan":
		return "apply", true
	case "plan-destroy":
		return "destroy", true
	case "plan-run":
		return "run", true
	}
	return "", false
}

func (c *cli) approval() *cobra.Command {
	return noun("approval", "Create keys and standing approvals of a customer",
		"A person of the customer signs approvals with a key that only the customer has. These\ncommands run on the customer's side and call no control plane.",
		c.approvalNewKey(), c.approvalGrant())
}

func (c *cli) approvalGrant() *cobra.Command {
	var key, at, region string
	var install string
	var valid time.Duration
	s := approval.Standing{V: 1}
	cmd := &cobra.Command{
		Use: "grant", Short: "Sign a standing approval and put it into the ledger",
		Long: `Signs an approval of later applies that are in its scope, and puts it into the runner's
ledger, from which each step reads it. Each apply uses it once. An apply out of its scope
needs an approval of its own. To end it early, remove its entry from the ledger.`,
		Example: `  fairlead approval grant --key alice.pem --ledger file:/var/lib/fairlead-runner/ledger \
    --install ins_01kahq --component web --action create --action update --uses 5 --valid 24h`,
		Args: exactly,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signer, err := c.approvalKey(cmd.Context(), key)
			if err != nil {
				return err
			}
			l, err := c.openLedger(cmd.Context(), at, region)
			if err != nil {
				return err
			}
			now := c.env.Now()
			s.ID, s.Install = strings.ToLower(rand.Text()), fairlead.InstallID(install)
			s.IssuedAt, s.From, s.Until = approval.At(now), approval.At(now), approval.At(now.Add(valid))
			envelope, err := s.Sign(cmd.Context(), signer)
			if err != nil {
				return err
			}
			if err := l.Create(cmd.Context(), record.Standing+s.ID, envelope); err != nil {
				return fmt.Errorf("write the approval into the ledger %s: %w", at, err)
			}
			return c.print(view.StandingApproval{ID: s.ID, Key: signer.Public().ID(), Uses: s.Uses, Until: s.Until.Time})
		},
	}
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "`FILE` with a private key in PEM, or awskms:ARN")
	f.StringVar(&at, "ledger", "", "the `LEDGER` of the agent's file")
	f.StringVar(&region, "region", "", "AWS `REGION` of the bucket; default: that of this process")
	f.StringVar(&install, "install", "", "`ID` of the install")
	f.StringArrayVar(&s.Components, "component", nil, "permit applies of this `COMPONENT`; can be repeated; default: each")
	f.StringArrayVar(&s.Operations, "operation", []string{"apply"}, "permit this `OPERATION`: apply, destroy or run; can be repeated")
	f.StringArrayVar(&s.Actions, "action", []string{"create", "update"}, "permit changes with this `ACTION`, such as create, update, replace, delete; can be repeated")
	f.IntVar(&s.Destroys, "destroys", 0, "how many objects one apply may delete or replace")
	f.IntVar(&s.Uses, "uses", 1, "how many applies it permits")
	f.DurationVar(&valid, "valid", 24*time.Hour, "how long it is valid")
	for _, name := range []string{"key", "ledger", "install"} {
		c.must(cmd.MarkFlagRequired(name))
	}
	return cmd
}

func (c *cli) approvalNewKey() *cobra.Command {
	return &cobra.Command{
		Use: "new-key FILE", Short: "Create a key that signs approvals",
		Long: `Creates an Ed25519 key, writes it to a file that only you can read, and prints the
public key. Write the public key into the customer's policy. Keep the file on the
customer's side only: who has it can approve.`,
		Example: "  fairlead approval new-key approval.pem",
		Args:    exactly,
		RunE: func(_ *cobra.Command, args []string) error {
			key, text, err := approval.NewFileKey()
			if err != nil {
				return err
			}
			if err := safefile.Create(args[0], text, 0o600); err != nil {
				return usage("", "the key cannot be written: %v", err)
			}
			return c.print(view.ApprovalKey{ID: key.Public().ID(), Public: string(key.Public().PEM())})
		},
	}
}
