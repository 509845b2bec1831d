package control

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/fargate"
	"github.com/fairlead/fairlead/infra/internal/nag"
	"github.com/fairlead/fairlead/infra/internal/policy"
	"github.com/fairlead/fairlead/pkg/config"
)

// directCIDR is the network of the service's own VPC, which contains nothing else.
const directCIDR = "10.249.1.0/24"

// DirectRoles are the names of the roles in customers' accounts that direct launch can assume.
// They begin with a prefix that no role of Fairlead's stacks has in a customer's account: those
// have the path /fairlead/.
const DirectRoles = "fairlead-direct-*"

// direct holds the parts of direct launch that need suppressions of cdk-nag rules.
type direct struct {
	role, execution awsiam.CfnRole
	reaches, starts []policy.Statement
	cluster         awsecs.CfnCluster
	task            awsecs.CfnTaskDefinition
	vpc             awsec2.CfnVPC // nil: the service uses the vendor's VPC
}

// launchesDirectly returns On if the stack has the service of direct launch, otherwise Off, as a condition of the template.
func (b *builder) launchesDirectly() string {
	return *b.when(ParameterDirect, string(config.On), string(config.Off)).ToString()
}

// makeDirectLaunch makes the service of direct launch: agents that start jobs in customers'
// clusters without an installed runner. It exists only if ParameterDirect names its image. It is
// not the build runner, because builds run the vendor's code, and these agents have customers'
// credentials.
//
// The service's role can ask the function `direct`, and become the roles that customers made for
// it. It has no access to the table, to queues or to keys.
func (b *builder) makeDirectLaunch() error {
	environment, err := config.Environ(&config.DirectLaunch{URL: b.url(), Function: b.aliasARN("direct"), Image: b.ownImage(), Data: "/var/lib/fairlead-runner", LogLevel: "info"})
	if err != nil {
		return fmt.Errorf("environment of direct launch: %w", err)
	}
	log := awslogs.NewCfnLogGroup(b.stack, jsii.String("DirectAgentsLog"), &awslogs.CfnLogGroupProps{
		LogGroupName: jsii.String("/" + b.name + "/direct-launch"), RetentionInDays: jsii.Number(float64(b.props.LogDays)),
	})
	log.ApplyRemovalPolicy(awscdk.RemovalPolicy_DESTROY, nil)

	tasks := fargate.Trust(b.account, b.arn("ecs", "*"))
	b.direct.starts = fargate.Starts(*log.AttrArn(), *b.runnerImages.AttrArn())
	b.direct.execution = awsiam.NewCfnRole(b.stack, jsii.String("DirectAgentsExecutionRole"), &awsiam.CfnRoleProps{
		Description: jsii.String(b.name + ": starts the container of direct launch"), AssumeRolePolicyDocument: tasks,
		Policies: []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("start"), PolicyDocument: policy.Document(b.direct.starts...)}},
	})
	b.direct.reaches = []policy.Statement{
		{Sid: "AskForRunners", Actions: []string{"lambda:InvokeFunction"}, Resources: []string{b.aliasARN("direct")}},
		{Sid: "ReachCustomers", Actions: []string{"sts:AssumeRole"}, Resources: []string{"arn:" + b.partition + ":iam::*:role/" + DirectRoles}},
		// The federation of Azure. IAM cannot limit this action to a resource.
		{Sid: "ReachAzure", Actions: []string{"sts:GetWebIdentityToken"}, Resources: []string{"*"},
			Conditions: map[string]map[string]any{"ForAllValues:StringEquals": {"sts:IdentityTokenAudience": "api://AzureADTokenExchange"}, "Null": {"sts:IdentityTokenAudience": "false"}}},
	}
	b.direct.role = awsiam.NewCfnRole(b.stack, jsii.String("DirectAgentsRole"), &awsiam.CfnRoleProps{
		RoleName:                 jsii.String(b.directRole()), // customers name it in the trust of their roles
		Description:              jsii.String(b.name + ": identity of direct launch, which customers' roles trust"),
		AssumeRolePolicyDocument: tasks,
		Policies:                 []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("reach"), PolicyDocument: policy.Document(b.direct.reaches...)}},
	})
	b.direct.cluster = fargate.Cluster(b.stack, "DirectAgentsCluster")
	image := b.imageOf(ParameterDirect)
	b.direct.task = fargate.Task{Family: b.name + "-direct-launch", Image: image, Size: fargate.Sizes()["Small"], Alone: true,
		Environment: environment, Role: b.direct.role, Execution: b.direct.execution, Log: log}.Definition(b.stack, "DirectAgentsTask")
	place, vpc := b.place(b.props.Direct, "DirectAgents", b.name+"-direct-launch", directCIDR)
	b.direct.vpc = vpc
	service := fargate.Service{Cluster: b.direct.cluster, Task: b.direct.task, Count: jsii.Number(1), Subnets: &place.subnets, PublicIP: jsii.String(place.publicIP),
		Group: fargate.OnlyOut(b.stack, "DirectAgentsSecurityGroup", place.vpc, "the control plane, to AWS and to the clusters in which it starts jobs"),
	}.Make(b.stack, "DirectAgentsService")
	for _, way := range place.ways {
		service.AddResourceDependency(way, nil)
	}
	return nil
}

// directRole returns the name of the service's role. Customers' roles trust it.
func (b *builder) directRole() string { return b.name + "-direct-launch-" + b.region }

// suppressDirectLaunch suppresses the cdk-nag rules that direct launch does not follow, each with a
// reason.
func (b *builder) suppressDirectLaunch() error {
	nag.Suppress(b.direct.task, "AwsSolutions-ECS2", "the variables are names; there is no secret")
	nag.Suppress(b.direct.cluster, "AwsSolutions-ECS4", "one task: its metrics come with ECS, and the control plane itself notices when it is silent")
	if b.direct.vpc != nil {
		nag.Suppress(b.direct.vpc, "AwsSolutions-VPC7", "the VPC holds one task without a way in; flow logs would cost more than the task")
	}
	if err := nag.Wildcards(b.stack, b.direct.role, b.direct.reaches, map[string]string{
		"ReachCustomers": "roles that customers made for it, in any account: each trusts this role by its own policy",
		"ReachAzure":     "the action knows no resource; the condition names the only audience",
	}); err != nil {
		return err
	}
	return nag.Wildcards(b.stack, b.direct.execution, b.direct.starts, map[string]string{
		"RunnerLog":     "the streams of the service's own log, one for each task",
		"RegistryLogin": "the action knows no resource; it opens what the other statements allow",
	})
}
