package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// Stack is a customer's runner stack.
type Stack wire.Stack

// JSON returns the wire.Stack.
func (s Stack) JSON() any { return wire.Stack(s) }

// StackState describes the state of a stack, and the time of the state.
func StackState(s wire.Stack) string {
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return Time(*t)
	}
	switch s.State {
	case "waiting":
		if s.WaitsUntil == nil {
			return "waiting for its runner"
		}
		return "waiting for its runner until " + at(s.WaitsUntil)
	case "expired":
		return "expired: no runner connected before " + at(s.WaitsUntil)
	case "stopped":
		return "stopped: its runner logged out at " + at(s.Since) + "; the stack was deleted, or its runner was stopped"
	case "lost":
		return "lost: its runner was last seen at " + at(s.Since)
	}
	return s.State
}

// Human writes the state of the stack, what the stack has reported, and what the
// customer needs to create it.
func (s Stack) Human(p *Page) {
	p.Fields([2]string{"Install", s.Install}, [2]string{"Runner", s.Runner}, [2]string{"Account", s.Account}, [2]string{"Region", s.Region},
		[2]string{"State", StackState(wire.Stack(s))}, [2]string{"Running jobs", strings.Join(s.Running, ", ")})
	if len(s.Running) > 0 {
		p.Line("If the customer deletes the stack, pause the runner and wait for these jobs first. Otherwise the deletion fails until they have ended.")
	}
	if r := s.Report; r != nil {
		p.Gap()
		rows := [][]string{{"stack", r.StackID}, {"template version", r.Version}, {"region", r.Region}, {"image", orDash(r.Image)},
			{"state bucket", r.StateBucket}, {"state key", r.StateKey}, {"made by the stack", orDash(strings.Join(r.Made, ", "))}, {"image repository", r.Images}, {"artifact repository", r.Artifacts}, {"boundary", r.Boundary}}
		if len(r.AppActions) > 0 {
			rows = append(rows, []string{"app actions", strings.Join(r.AppActions, ",")})
		}
		for _, operation := range sortedKeys(r.OperationActions) {
			rows = append(rows, []string{"actions of " + operation, strings.Join(r.OperationActions[operation], ",")})
		}
		for _, operation := range sortedKeys(r.Roles) {
			rows = append(rows, []string{"role " + operation, r.Roles[operation]})
		}
		p.Table([]string{"REPORTED", "VALUE"}, rows)
	}
	if len(s.Changes) > 0 {
		p.Gap()
		var rows [][]string
		for _, c := range s.Changes {
			rows = append(rows, []string{Time(c.At), strings.Join(c.What, "; ")})
		}
		p.Table([]string{"CHANGED", "WHAT"}, rows)
	}
	p.Gap()
	exists := s.State == "online" || s.State == "lost"
	switch {
	case exists && s.Update != nil:
		s.update(p)
	case exists:
		p.Line("The stack has the current template and image.")
	}
	if s.State == "stopped" || s.State == "lost" {
		p.Line("If the stack was deleted, the role of a new one must be accepted: `fairlead install stack %s --account %s --replace`.", s.Install, s.Account)
	}
	if !exists {
		p.Line("Open this link in account %s, or send it to a person who may create stacks there:", s.Account)
		p.Line("  %s", s.QuickCreateURL)
	}
	p.Gap()
	p.Line("Template: %s", s.TemplateURL)
	rows := make([][]string, len(s.Parameters))
	for i, q := range s.Parameters {
		rows[i] = []string{q.Name, q.Value}
	}
	p.Table([]string{"PARAMETER", "VALUE"}, rows)
	for _, uses := range s.AppUses {
		p.Line("%s", uses)
	}
	secrets(p, s.CustomerSecrets)
	scriptImages(p, s.ScriptImages)
	p.Line("%s", fmt.Sprintf("Acknowledge that the stack creates named IAM resources (CAPABILITY_NAMED_IAM). Stack name: %s", s.StackName))
	if exists {
		return
	}
	p.Line("By default the stack makes a VPC; AWS allows 5 a region. If they are used up, set NetworkMode to ExistingVpc.")
	if s.reuses() {
		p.Line("ExistingStateBucket and ExistingStateKey let the stack continue with the states that an earlier stack left. If the bucket was removed, leave both empty.")
	}
}

// scriptImages writes what the vendor and the customer must do if the stack has no place for all images of scripts.
func scriptImages(p *Page, all []wire.ScriptImage) {
	n := len(wire.DistinctImages(all))
	if n <= wire.MaxScriptImages {
		return
	}
	p.Gap()
	p.Line("The scripts of the app run in %d images, and the parameter ScriptImages has place for %d.", n, wire.MaxScriptImages)
	table(p, []string{"COMPONENT", "IMAGE"}, all, func(i wire.ScriptImage) []string { return []string{i.Component, i.Image} })
	p.Line("The link lists none of them. The customer sets ScriptImages to the images of the scripts that the install uses: at most %d, separated by commas. The plan of every other script fails. Better, use fewer images.", wire.MaxScriptImages)
	p.Gap()
}

func (s Stack) reuses() bool {
	return slices.ContainsFunc(s.Parameters, func(q wire.StackParameter) bool { return q.Name == wire.StackExistingBucket })
}

// update writes what an update of the stack changes, and the link for the customer.
func (s Stack) update(p *Page) {
	u := s.Update
	p.Line("The stack is behind. An update changes:")
	for _, v := range u.Versions {
		for _, c := range v.Changes {
			p.Line("  %s: %s", v.Version, c)
		}
	}
	if len(u.Missing) > 0 {
		p.Line("  Actions: the app also uses %s", strings.Join(u.Missing, ", "))
	}
	if u.StateBucket != "" {
		s.statesApart(p)
	}
	if s.Report.Image != u.Image {
		p.Line("  RunnerImage: %s", u.Image)
	}
	p.Gap()
	p.Line("Open this link in account %s, or send it to a person who may update stacks there:", s.Account)
	p.Line("  %s", u.URL)
	p.Line("Keep your own parameters, and set the others as below. Review the change set before you apply it.")
	p.Line("A running job gets time to save its state, and the next plan shows what it left.")
}

// statesApart writes how the stack gets the states of its install.
func (s Stack) statesApart(p *Page) {
	if s.reuses() {
		p.Line("  ExistingStateBucket and ExistingStateKey: the states of the install are in %s, and the stack has the bucket %s", s.Update.StateBucket, s.Report.StateBucket)
		return
	}
	p.Line("  States: those of the install are in %s, which is not in the account and region of this stack. Install the stack where it is: --account, --region and --replace.", s.Update.StateBucket)
}

// Stacks is a list of customers' runner stacks.
type Stacks []wire.Stack

// JSON returns an array of wire.Stack.
func (ss Stacks) JSON() any { return array(ss) }

// Human writes a table.
func (ss Stacks) Human(p *Page) {
	table(p, []string{"INSTALL", "ACCOUNT", "REGION", "STATE", "TEMPLATE", "IMAGE", "REPORTED", "UPDATE"}, ss, func(s wire.Stack) []string {
		template, image, reported, update := "-", "-", "-", "-"
		if r := s.Report; r != nil {
			template, image = r.Version, orDash(shortImage(r.Image))
		}
		if s.ReportedAt != nil {
			reported = p.Ago(*s.ReportedAt)
		}
		if u := s.Update; u != nil {
			update = u.URL
			if len(u.Versions) > 0 {
				template += " (now " + u.Version + ")"
			}
		}
		return []string{s.Install, s.Account, orDash(region(s)), s.State, template, image, reported, update}
	})
}

// region returns the region of the stack, or the proposed one before its first report.
func region(s wire.Stack) string {
	if s.Report != nil {
		return s.Report.Region
	}
	return s.Region
}

// shortImage returns the first characters of an image's digest.
func shortImage(image string) string {
	if _, digest, ok := strings.Cut(image, "@sha256:"); ok {
		return digest[:min(len(digest), 12)]
	}
	return image
}

// Orphans is what stays in the customer's account when the stack is deleted, and what
// replaced stacks left there.
type Orphans wire.Stack

// JSON returns an array of wire.StackResource.
func (o Orphans) JSON() any { return array(o.Left) }

// Human writes what is left, with the commands that remove it.
func (o Orphans) Human(p *Page) {
	if o.Report == nil {
		p.Line("The stack that was prepared for account %s has not reported. If a customer created it, it is not in this list: look for the stack %s in CloudFormation, whose output RetainedResources names what stays. A first creation that fails leaves only a key, which AWS deletes after 30 days.", o.Account, o.StackName)
	}
	if len(o.Left) == 0 {
		return
	}
	table(p, []string{"STACK", "TYPE", "NAME", "LEFT BY", "MADE BY"}, o.Left, func(r wire.StackResource) []string {
		by := "the current stack, if it is deleted"
		if r.Replaced {
			by = "a replaced stack"
		}
		made := "a stack of the install"
		if !r.Own {
			made = "others"
		}
		return []string{r.Stack, r.Type, r.ID, by, made}
	})
	p.Gap()
	p.Line("The bucket holds the only record of what the app made in account %s. Remove these only after `fairlead install teardown %s`, in this order:", o.Account, o.Install)
	for _, r := range o.Left {
		if r.Own {
			p.Line("  %s", removal(r))
		}
	}
	for _, r := range o.Left {
		if !r.Own {
			p.Line("Keep %s: no stack of the install made it, so it is the customer's own, and other data may need it.", r.ID)
		}
	}
}

// removal returns how a person in the customer's account removes a resource.
func removal(r wire.StackResource) string {
	place := ""
	if arn := strings.Split(r.Stack, ":"); len(arn) > 3 {
		place = " --region " + arn[3]
	}
	switch r.Type {
	case "s3-bucket":
		return "empty the bucket in the S3 console, which removes all versions; then: aws s3api delete-bucket --bucket " + r.ID + place
	case "kms-key":
		return "aws kms schedule-key-deletion --pending-window-in-days 30 --key-id " + r.ID + place
	case "iam-policy":
		return "aws iam delete-policy --policy-arn " + r.ID
	}
	return "after a teardown this is empty: aws iam list-roles --path-prefix " + r.ID
}
