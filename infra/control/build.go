package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscodebuild"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/fargate"
	"github.com/fairlead/fairlead/infra/internal/nag"
	"github.com/fairlead/fairlead/infra/internal/policy"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// Build configures the build runner: a runner of the vendor that runs beside the
// control plane, from the image with a shell and git if there is one, because builds need
// git. Else it runs from the image that customers get, and builds fail. An image of the
// settings takes precedence. The parameters
// ParameterBuildRunner and ParameterBuildKeys have its identifier and its keys. Without
// an identifier, the stack has no build runner and no cost for one.
type Build struct {
	Size string // a size of the customers' stack; default "Small"
	// Image is the build runner's image by digest, in place of the published one, for example one with Go and ko.
	Image string
	// Secrets are NAME=ARN, for builds that name them as logins. ARN is that of a secret in
	// Secrets Manager or of a parameter in SSM, and #KEY after it takes one field.
	Secrets []string
	Network
	Images Images
}

// buildCIDR is the network of the build runner's own VPC, which contains nothing else.
const buildCIDR = "10.249.0.0/24"

// buildSecretPattern admits no wildcard: the role of the build runner may read each ARN.
var buildSecretPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=arn:aws[a-z-]*:(ssm:[a-z0-9-]+:[0-9]{12}:parameter/|secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:)[A-Za-z0-9/_+.@-]+(#[A-Za-z0-9_.-]+)?$`)

// agentFile returns the agent's file with the secrets; "" if there are none.
func (p *Build) agentFile() (string, error) {
	if len(p.Secrets) == 0 {
		return "", nil
	}
	secrets := map[string]string{}
	for _, s := range p.Secrets {
		name, reference, _ := strings.Cut(s, "=")
		secrets[name] = reference
	}
	text, err := json.Marshal(map[string]any{"runner_configuration": map[string]string{"type": "local"}, "secrets": secrets})
	return string(text), err
}

// secretARNs returns the ARNs of the secrets, without the fields that builds take of them.
func (p *Build) secretARNs() (arns []string) {
	for _, s := range p.Secrets {
		_, reference, _ := strings.Cut(s, "=")
		arn, _, _ := strings.Cut(reference, "#")
		arns = append(arns, arn)
	}
	slices.Sort(arns)
	return slices.Compact(arns)
}

// check validates the fields and sets the default size.
func (p *Build) check() error {
	if p.Size == "" {
		p.Size = "Small"
	}
	_, known := fargate.Sizes()[p.Size]
	switch {
	case !known:
		return fmt.Errorf("buildRunnerSize is %q; use Small, Medium, Large or XLarge", p.Size)
	case p.Image != "" && !imagePattern.MatchString(p.Image):
		return fmt.Errorf("buildRunnerImage %q is not an image by digest", p.Image)
	case len(p.Secrets) > runnerspec.MaxSecrets:
		return fmt.Errorf("buildRunnerSecrets has %d secrets; an agent's file holds %d", len(p.Secrets), runnerspec.MaxSecrets)
	}
	names := map[string]bool{}
	for _, s := range p.Secrets {
		name, _, _ := strings.Cut(s, "=")
		if !buildSecretPattern.MatchString(s) || names[name] { // the message does not quote what may be the secret itself
			return errors.New("buildRunnerSecrets: use NAME=ARN, separated by commas, each name once, such as GHCR_LOGIN=arn:aws:secretsmanager:eu-central-1:111122223333:secret:ghcr-AbCdEf")
		}
		names[name] = true
	}
	return errors.Join(p.Images.check(), p.Network.check("buildRunner"))
}

// buildRunnerRole returns the name of the build runner's role. The name is known
// before the role exists, so the runner can be registered with it first.
func (b *builder) buildRunnerRole() string { return b.name + "-build-runner-" + b.region }

// build holds the parts of the build runner that need suppressions of cdk-nag rules.
type build struct {
	role      awsiam.CfnRole
	reads     []policy.Statement // of role; nil: it has no policy
	execution awsiam.CfnRole
	starts    []policy.Statement
	cluster   awsecs.CfnCluster
	task      awsecs.CfnTaskDefinition
	vpc       awsec2.CfnVPC // nil: the runner uses the vendor's VPC
	images    awscodebuild.CfnProject
	imageRole awsiam.CfnRole
	writes    policy.Statement // of imageRole
}

// makeBuildRunner makes the build runner, which exists only if ParameterBuildRunner is
// set. Its role proves the runner's identity, and may read the secrets of the settings. It
// has no other permission: the control plane gives each job the credentials that it needs.
func (b *builder) makeBuildRunner() error {
	p := b.props.Build
	file, err := p.agentFile()
	if err != nil {
		return fmt.Errorf("agent's file of the build runner: %w", err)
	}
	environment, err := fargate.Environment(config.Runner{URL: b.url(), RunnerID: b.parameters[ParameterBuildRunner].value,
		TrustedKeys: []string{b.parameters[ParameterBuildKeys].value}, Config: file}) // the parameter separates its keys as the variable does
	if err != nil {
		return fmt.Errorf("environment of the build runner: %w", err)
	}
	log := awslogs.NewCfnLogGroup(b.stack, jsii.String("BuildRunnerLog"), &awslogs.CfnLogGroupProps{
		LogGroupName: jsii.String("/" + b.name + "/build-runner"), RetentionInDays: jsii.Number(float64(b.props.LogDays)),
	})
	log.ApplyRemovalPolicy(awscdk.RemovalPolicy_DESTROY, nil)

	tasks := fargate.Trust(b.account, b.arn("ecs", "*"))
	b.build.starts = fargate.Starts(*log.AttrArn(), *b.runnerImages.AttrArn())
	b.build.execution = awsiam.NewCfnRole(b.stack, jsii.String("BuildRunnerExecutionRole"), &awsiam.CfnRoleProps{
		Description: jsii.String(b.name + ": starts the build runner's container"), AssumeRolePolicyDocument: tasks,
		Policies: []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("start"), PolicyDocument: policy.Document(b.build.starts...)}},
	})
	role := &awsiam.CfnRoleProps{
		RoleName:                 jsii.String(b.buildRunnerRole()),
		Description:              jsii.String(b.name + ": identity of the build runner, which may do nothing by itself"),
		AssumeRolePolicyDocument: tasks,
	}
	if len(p.Secrets) > 0 {
		b.build.reads = fargate.ReadsSecrets(p.secretARNs(), b.arn("kms", "key/*"))
		role.Description = jsii.String(b.name + ": identity of the build runner, which may read the logins of builds")
		role.Policies = []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("secrets"), PolicyDocument: policy.Document(b.build.reads...)}}
	}
	b.build.role = awsiam.NewCfnRole(b.stack, jsii.String("BuildRunnerRole"), role)
	image := p.Image
	if image == "" {
		image = *b.when(ParameterShell, b.imageOf(ParameterShell), b.ownImage()).ToString()
	}
	b.build.cluster = fargate.Cluster(b.stack, "BuildRunnerCluster")
	b.build.task = fargate.Task{Family: b.name + "-build-runner", Image: image, Size: fargate.Sizes()[p.Size],
		Environment: environment, Role: b.build.role, Execution: b.build.execution, Log: log}.Definition(b.stack, "BuildRunnerTask")
	place, vpc := b.place(p.Network, "BuildRunner", b.name+"-build-runner", buildCIDR)
	b.build.vpc = vpc
	service := fargate.Service{Cluster: b.build.cluster, Task: b.build.task, Count: jsii.Number(1), Subnets: &place.subnets, PublicIP: jsii.String(place.publicIP),
		Group: fargate.OnlyOut(b.stack, "BuildRunnerSecurityGroup", place.vpc, "the control plane, to AWS and to what builds download"),
	}.Make(b.stack, "BuildRunnerService")
	for _, way := range place.ways {
		service.AddResourceDependency(way, nil)
	}
	b.makeImageProject()
	b.onlyAll(ParameterBuildRunner, "BuildRunner")
	return nil
}

// suppressBuild suppresses the cdk-nag rules that the build runner does not follow,
// each with a reason.
func (b *builder) suppressBuild() error {
	nag.Suppress(b.build.task, "AwsSolutions-ECS2", "the variables are names and public keys; there is no secret")
	nag.Suppress(b.build.cluster, "AwsSolutions-ECS4", "one task: its metrics come with ECS, and the control plane itself notices when it is silent")
	if b.build.vpc != nil {
		nag.Suppress(b.build.vpc, "AwsSolutions-VPC7", "the VPC holds one task without a way in; flow logs would cost more than the task")
	}
	nag.Suppress(b.build.images, "AwsSolutions-CB3", "Docker needs the privileged mode; the role of a build may only write its own log")
	nag.Suppress(b.build.images, "AwsSolutions-CB4", "a project without a source and artifacts encrypts nothing with its key")
	if err := nag.Wildcards(b.stack, b.build.imageRole, []policy.Statement{b.build.writes}, map[string]string{"OwnLog": "the streams of the project's log, one for each build"}); err != nil {
		return err
	}
	if err := nag.Wildcards(b.stack, b.build.role, b.build.reads, map[string]string{
		"OpenSecrets": "the keys of the secrets are not known; a condition limits it to what Secrets Manager and SSM open, and these open only the named secrets",
	}); err != nil {
		return err
	}
	return nag.Wildcards(b.stack, b.build.execution, b.build.starts, map[string]string{
		"RunnerLog":     "the streams of the build runner's own log, one for each task",
		"RegistryLogin": "the action knows no resource; it opens what the other statements allow",
	})
}
