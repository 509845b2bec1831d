// Package deployment brings the vendor's control plane into an AWS account, whole:
// the stack, the runner's image and the template that customers install, in places
// of the stack's own, and a login for the CLI.
//
// Everything that is published is named by its digest, which is known before it
// is there. So the stack is told once, in one deployment, what it will hand out;
// and whatever ended halfway is finished by doing it again.
package deployment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
)

// CDK is the CLI that deploys: a version that reads what the pinned library
// writes.
const CDK = "aws-cdk@2.1148.1"

// toolkit is the stack by which an account is prepared for the CDK.
const toolkit = "CDKToolkit"

// Options say what is deployed, and for whom.
type Options struct {
	Stage     string   // part of every name
	Account   string   // in which the stack must be; "": that of the credentials
	Operator  string   // name of the token with which the CLI logs in
	Version   string   // that the runner reports
	Customers []string // accounts that may read image and template, beside those that may already
	Without   []string // accounts that may no longer
	DryRun    bool     // say what would be done, and do nothing
	Yes       bool     // the CDK does not ask before permissions grow
	// BuildRunner is the name of a runner of the vendor's own that is kept running
	// beside the control plane; "": as it is; NoBuildRunner: there is to be none.
	BuildRunner string
}

// NoBuildRunner takes the build runner away.
const NoBuildRunner = "none"

// Deployment deploys. It is for one use, by one goroutine.
type Deployment struct {
	Options
	Config aws.Config        // with region and credentials
	Root   string            // folder of the source, below which everything is built
	Run    Run               // runs programs
	Remote http.RoundTripper // reaches the registry; nil: http.DefaultTransport
	Out    io.Writer         // what is being done, for a person
}

// Run runs a program and returns what it wrote to its standard output. An
// interactive one has the terminal instead, and returns nothing.
type Run func(ctx context.Context, c Command) ([]byte, error)

// Command is a program with its arguments.
type Command struct {
	Args        []string
	Folder      string // in which it runs
	Env         []string
	Stdin       string
	Interactive bool
}

var (
	accountPattern = regexp.MustCompile(`^[0-9]{12}$`)
	stagePattern   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,15}$`)
)

func (o Options) check() error {
	if !stagePattern.MatchString(o.Stage) {
		return fmt.Errorf("stage %q: use up to 16 lower-case letters, digits and hyphens, beginning with a letter", o.Stage)
	}
	for _, a := range slices.Concat(o.Customers, o.Without) {
		if !accountPattern.MatchString(a) {
			return fmt.Errorf("customer %q is no account: name it by its twelve digits", a)
		}
	}
	return nil
}

func (d *Deployment) stack() string { return "fairlead-" + d.Stage }

// state is what there is before, and what is to be.
type state struct {
	account, caller string
	prepared        bool              // the account, for the CDK
	status          types.StackStatus // of the stack; "": there is none
	outputs         map[string]string // of the stack
	readers         []string          // accounts that are to read image and template
	builder         string            // identifier of the build runner that there is to be; "": none
}

// made reports whether a stack was made to its end, whatever became of it since.
func made(s types.StackStatus) bool {
	switch s {
	case "", types.StackStatusReviewInProgress, types.StackStatusCreateInProgress, types.StackStatusCreateFailed,
		types.StackStatusRollbackInProgress, types.StackStatusRollbackComplete, types.StackStatusRollbackFailed:
		return false
	}
	return true
}

// rolledBack reports whether the creation of a stack failed. Such a stack was never
// there for anybody, and can only be deleted.
func rolledBack(s types.StackStatus) bool {
	return s == types.StackStatusRollbackComplete || s == types.StackStatusRollbackFailed
}

// Do deploys, and says what it does. What is there already is left as it is: done
// twice, nothing changes the second time, and after an error it is done again.
func (d *Deployment) Do(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	s, err := d.look(ctx)
	if err != nil {
		return err
	}
	d.announce(s)
	if d.DryRun {
		return nil
	}
	if err := d.deploy(ctx, s); err != nil {
		return fmt.Errorf("%w\nNothing has to be undone: run the command again, and it goes on from here", err)
	}
	d.say("\nThe control plane is there. Next:\n  fairlead app apply examples/shop")
	if len(s.readers) == 0 {
		d.say("No customer may read image and template yet: name their accounts with CUSTOMERS=, and deploy again.")
	}
	return nil
}

func (d *Deployment) deploy(ctx context.Context, s state) error {
	image, err := d.build(ctx)
	if err != nil {
		return err
	}
	if s.outputs, err = d.bring(ctx, s, image); err != nil {
		return err
	}
	s.prepared = true
	if !made(s.status) {
		// The tables could not be protected before: a creation that fails must be able to
		// remove them. Whatever ends here, the next run sees a stack that was made.
		s.status = types.StackStatusCreateComplete
		d.say("Protecting the tables against deletion")
		if s.outputs, err = d.bring(ctx, s, image); err != nil {
			return err
		}
	}
	if err := d.login(ctx, s.outputs); err != nil {
		return err
	}
	if d.BuildRunner == "" || d.BuildRunner == NoBuildRunner {
		return nil
	}
	// Its identifier is the control plane's to give, so the first deployment cannot
	// have it.
	builder, err := d.makeRunner(ctx, s)
	if err != nil || builder == s.builder {
		return err
	}
	s.builder = builder
	_, err = d.bring(ctx, s, image)
	return err
}

// bring brings the stack to what it is to be, with all that it hands out, and
// returns its outputs.
func (d *Deployment) bring(ctx context.Context, s state, image string) (map[string]string, error) {
	r, err := d.synthesize(ctx, s, image)
	if err != nil {
		return nil, err
	}
	// What the functions hand out must be there before they do. Of a first stack
	// nobody asks anything yet.
	if s.outputs["TemplateBucket"] != "" {
		if err := d.publish(ctx, s.outputs, r); err != nil {
			return nil, err
		}
	}
	if !s.prepared {
		d.say("Preparing the account for the CDK")
		if _, err := d.cdk(ctx, "bootstrap", "aws://"+s.account+"/"+d.Config.Region, "--app", d.assembly()); err != nil {
			return nil, err
		}
	}
	if rolledBack(s.status) {
		if err := d.unprotect(ctx, s); err != nil {
			return nil, err
		}
	}
	d.say("Deploying the stack %s", d.stack())
	approval := "broadening"
	if d.Yes {
		approval = "never"
	}
	if _, err := d.cdk(ctx, "deploy", d.stack(), "--app", d.assembly(), "--require-approval", approval); err != nil {
		return nil, err
	}
	there, err := d.describe(ctx, d.stack())
	if err != nil {
		return nil, err
	}
	outputs := there.outputs
	if !strings.HasSuffix(outputs["RunnerImage"], "@"+r.image) || outputs["TemplateKey"] != r.templateKey() || outputs["BuildRunner"] != s.builder {
		return nil, fmt.Errorf("the stack %s hands out the image %s and the template %s, and its build runner is %q: not what was built: has somebody else deployed it meanwhile?",
			d.stack(), outputs["RunnerImage"], outputs["TemplateKey"], outputs["BuildRunner"])
	}
	return outputs, d.publish(ctx, outputs, r)
}

// unprotect lets the CDK delete a stack whose creation was rolled back, as it does
// before it makes the stack anew. The CDK itself has switched termination protection
// on before that creation began, and CloudFormation refuses to delete what has it.
func (d *Deployment) unprotect(ctx context.Context, s state) error {
	d.say("The first creation of the stack %s was rolled back (%s): switching its termination protection off, so that what is left of it can go", d.stack(), s.status)
	_, err := cloudformation.NewFromConfig(d.Config).UpdateTerminationProtection(ctx,
		&cloudformation.UpdateTerminationProtectionInput{StackName: aws.String(d.stack()), EnableTerminationProtection: aws.Bool(false)})
	if err != nil {
		return fmt.Errorf("switch the termination protection of the stack %s off: %w", d.stack(), err)
	}
	return nil
}

// look asks who is calling, and what there is.
func (d *Deployment) look(ctx context.Context) (state, error) {
	if d.Config.Region == "" {
		return state{}, errors.New("no region is given: set REGION=, AWS_REGION or that of your profile")
	}
	who, err := sts.NewFromConfig(d.Config).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return state{}, fmt.Errorf("ask AWS whose credentials these are: %w\nSet AWS_PROFILE, or log in as you do for the AWS CLI", err)
	}
	s := state{account: aws.ToString(who.Account), caller: aws.ToString(who.Arn)}
	if d.Account != "" && d.Account != s.account {
		return state{}, fmt.Errorf("the credentials are of account %s, and the stack is to be in %s: nothing was done", s.account, d.Account)
	}
	kit, err := d.describe(ctx, toolkit)
	if err != nil {
		return state{}, err
	}
	s.prepared = made(kit.status)
	there, err := d.describe(ctx, d.stack())
	if err != nil {
		return state{}, err
	}
	s.status, s.outputs = there.status, there.outputs
	s.readers = slices.Concat(strings.FieldsFunc(s.outputs["RunnerReaders"], func(r rune) bool { return r == ',' }), d.Customers)
	s.readers = slices.DeleteFunc(s.readers, func(a string) bool { return slices.Contains(d.Without, a) })
	slices.Sort(s.readers)
	s.readers = slices.Compact(s.readers)
	if d.BuildRunner != NoBuildRunner {
		s.builder = s.outputs["BuildRunner"]
	}
	return s, nil
}

// described is what CloudFormation says of a stack.
type described struct {
	status  types.StackStatus // "": there is none
	outputs map[string]string
}

// describe asks CloudFormation of a stack.
func (d *Deployment) describe(ctx context.Context, stack string) (described, error) {
	found, err := cloudformation.NewFromConfig(d.Config).DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &stack})
	var refused smithy.APIError
	if errors.As(err, &refused) && refused.ErrorCode() == "ValidationError" && strings.Contains(refused.ErrorMessage(), "does not exist") {
		return described{}, nil
	}
	if err != nil {
		return described{}, fmt.Errorf("look for the stack %s: %w", stack, err)
	}
	out := described{outputs: map[string]string{}}
	for _, s := range found.Stacks {
		out.status = s.StackStatus
		for _, o := range s.Outputs {
			out.outputs[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
		}
	}
	return out, nil
}

// announce says what will be done.
func (d *Deployment) announce(s state) {
	d.say("Stage %s, in account %s and region %s, as %s:", d.Stage, s.account, d.Config.Region, s.caller)
	step := func(format string, args ...any) { d.say("  - "+format, args...) }
	step("build the functions, the runner's image and both templates, here")
	if !s.prepared {
		step("prepare the account for the CDK, which makes the stack %s: a bucket, a registry and five roles", toolkit)
	}
	if rolledBack(s.status) {
		step("take away what is left of the stack %s, whose first creation was rolled back: %s", d.stack(), s.status)
	}
	verb := "make"
	if made(s.status) {
		verb = "update"
	}
	step("%s the stack %s", verb, d.stack())
	step("publish the image in the stack's registry and the template in its bucket, unless they are there")
	if len(s.readers) > 0 {
		step("let these accounts read both: %s", strings.Join(s.readers, ", "))
	} else {
		step("let no other account read them")
	}
	step("log the CLI in with a token named %s, unless it is", d.Operator)
	switch d.BuildRunner {
	case "":
	case NoBuildRunner:
		step("take the build runner away, if there is one")
	default:
		step("make the runner %s, and keep an agent of it running beside the control plane, unless there is one", d.BuildRunner)
	}
}

func (d *Deployment) say(format string, args ...any) {
	fmt.Fprintf(d.Out, format+"\n", args...)
}

// assembly is the folder of the synthesized stacks.
func (d *Deployment) assembly() string { return filepath.Join(d.Root, "bin", "infra") }

// cdk runs the CDK's CLI in the root, where cdk.json is.
func (d *Deployment) cdk(ctx context.Context, args ...string) ([]byte, error) {
	c := Command{Args: slices.Concat([]string{"npx", "--yes", CDK}, args, []string{"--no-notices", "--no-version-reporting"}),
		Folder: d.Root, Env: []string{"AWS_REGION=" + d.Config.Region}, Interactive: true}
	return d.Run(ctx, c)
}
