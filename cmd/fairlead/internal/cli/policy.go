package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/ledger"
	"github.com/fairlead/fairlead/runner/ledger/places"
	"github.com/fairlead/fairlead/runner/ledger/record"
)

func (c *cli) policy() *cobra.Command {
	return noun("policy", "Check a customer's policy", "A policy is a file of the customer that decides what the vendor's jobs may do in the\ncustomer's account. The runner enforces it. These commands run on the customer's side\nand call no control plane.",
		c.policyCheck(), c.policyTest())
}

func (c *cli) policyCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE", Short: "Report every problem in a policy",
		Long: `Reads the policy as a runner does, and reports every problem with its line and column.
A runner whose policy has a problem starts nothing.`,
		Example:           `  fairlead policy check policy.yaml`,
		ValidArgsFunction: policyFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			_, problems, err := c.readPolicy(args[0])
			if err != nil {
				return err
			}
			if err := c.print(view.PolicyProblems{File: args[0], Problems: problems}); err != nil {
				return err
			}
			if len(problems) > 0 {
				return &failure{code: exitInvalid} // the printed result has the problems
			}
			return nil
		},
	}
}

func policyFiles(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

func (c *cli) readPolicy(file string) (*policy.Policy, policy.Problems, error) {
	src, err := c.readFile(file, "policy", policy.MaxFileSize+1)
	if err != nil {
		return nil, nil, err
	}
	p, problems := policy.Parse(file, src)
	return p, problems, nil
}

func (c *cli) policyTest() *cobra.Command {
	var at, region string
	var all bool
	cmd := &cobra.Command{
		Use: "test FILE", Short: "Show what a policy would have denied",
		Long: `Evaluates the policy over the last 500 plans in the runner's ledger, and lists those
that it decides otherwise than the policy that the runner had then. Use the credentials
of a person who may read the ledger. Windows are not evaluated, because they concern
applies. Exit code 2: the policy has a problem.`,
		Example: `  fairlead policy test policy.yaml --ledger s3:acme-runner/ledger
  fairlead policy test policy.yaml --ledger file:/var/lib/fairlead-runner/ledger --all`,
		ValidArgsFunction: policyFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, problems, err := c.readPolicy(args[0])
			if err != nil {
				return err
			}
			if len(problems) > 0 {
				if err := c.print(view.PolicyTest{File: args[0], Problems: problems, Plans: []view.PolicyPlan{}}); err != nil {
					return err
				}
				return &failure{code: exitInvalid} // the printed result has the problems
			}
			l, err := c.openLedger(cmd.Context(), at, region)
			if err != nil {
				return err
			}
			plans, err := record.Last(cmd.Context(), l)
			if err != nil {
				return fmt.Errorf("read the ledger %s: %w", at, err)
			}
			return c.print(tested(args[0], p, plans, all))
		},
	}
	cmd.Flags().StringVar(&at, "ledger", "", "the `LEDGER` of the agent's file")
	cmd.Flags().StringVar(&region, "region", "", "AWS `REGION` of the bucket; default: that of this process")
	cmd.Flags().BoolVar(&all, "all", false, "list also the plans that both policies decide in the same way")
	return cmd
}

// openLedger opens the ledger of an agent's file.
func (c *cli) openLedger(ctx context.Context, at, region string) (ledger.Ledger, error) {
	location, err := runnerspec.ParseLedger(at)
	if err != nil {
		return nil, usage("Write the ledger of the agent's file: file:/path, s3:BUCKET/PREFIX or kubernetes:NAMESPACE.", "--ledger: %v", err)
	}
	if location.Store == runnerspec.StoreS3 && c.env.BucketLedger == nil {
		return nil, c.lacks("cannot reach AWS")
	}
	return places.Opener{Bucket: c.env.BucketLedger}.Open(ctx, location, region)
}

// tested evaluates a policy over plans.
func tested(file string, p *policy.Policy, plans []record.Plan, all bool) view.PolicyTest {
	out := view.PolicyTest{File: file, Tested: len(plans), Plans: []view.PolicyPlan{}}
	for _, r := range plans {
		d := p.Decide(r.Request())
		if d.Effect == policy.Deny {
			out.Denied++
		}
		changed := d.Effect != r.Effect || d.Effect != policy.Allow && d.Rule != r.Rule
		if changed {
			out.Differences++
		}
		if changed || all {
			out.Plans = append(out.Plans, view.PolicyPlan{At: r.At, Install: r.Install, Component: r.Component, Operation: string(r.Operation), Job: r.Job,
				Before: view.PolicyDecision{Decision: string(r.Effect), Rule: r.Rule, Reason: r.Reason},
				Now:    view.PolicyDecision{Decision: string(d.Effect), Rule: d.Rule, Line: d.Line, Reason: d.Reason}})
		}
	}
	return out
}
