package runnerstack

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/fargate"
	"github.com/fairlead/fairlead/infra/internal/policy"
)

// network is the network of the runner.
type network struct {
	subnets  awscdk.IResolvable // a list
	publicIP awscdk.IResolvable
	group    awsec2.CfnSecurityGroup
	vpc      awsec2.CfnVPC
	way      awscdk.IResolvable // refers to the resources that must exist before a task starts
}

// makeNetwork makes a VPC with two subnets, unless the customer gives a VPC. The VPC
// permits no incoming connections. A parameter of the template decides whether it has
// a NAT gateway.
func (b *builder) makeNetwork() {
	p := b.p
	n := &fargate.Network{Stack: b.stack, Label: "fairlead-runner", CIDR: p.vpcCIDR.ValueAsString(), If: p.newVPC}
	n.Make()
	privateRoutes, privates := b.behindNAT(n)
	n.ShortWay(n.Routes.Ref(), *awscdk.Token_AsString(onIf(p.hasNAT, privateRoutes.Ref(), awscdk.Aws_NO_VALUE()), nil))

	b.network.vpc = n.VPC
	b.network.group = fargate.OnlyOut(b.stack, "RunnerSecurityGroup", awscdk.Token_AsString(onIf(p.newVPC, n.VPC.Ref(), p.vpc.ValueAsString()), nil),
		"the control plane, to AWS and to what tools of the app talk to")
	ids := func(list []fargate.Subnet) []any { return []any{list[0].Ref(), list[1].Ref()} }
	b.network.subnets = onIf(p.newVPC, onIf(p.hasNAT, ids(privates), ids(n.Publics)), p.subnets.ValueAsList())
	ways := func(list []fargate.Subnet) *string {
		return awscdk.Fn_Join(jsii.String(" "), &[]*string{list[0].Association.Ref(), list[1].Association.Ref()})
	}
	b.network.way = onIf(p.newVPC, onIf(p.hasNAT, ways(privates), ways(n.Publics)), "existing")
	b.network.publicIP = onIf(p.needsPublicIP, "ENABLED", "DISABLED")
}

// behindNAT makes two private subnets that reach the internet through a NAT gateway.
func (b *builder) behindNAT(n *fargate.Network) (awsec2.CfnRouteTable, []fargate.Subnet) {
	in := func(r awscdk.CfnResource) { r.CfnOptions().SetCondition(b.p.hasNAT) }
	routes := n.Table("PrivateRoutes", b.p.hasNAT)
	address := awsec2.NewCfnEIP(b.stack, jsii.String("NatAddress"), &awsec2.CfnEIPProps{Domain: jsii.String("vpc"), Tags: n.Name("nat")})
	in(address)
	address.AddResourceDependency(n.Attachment, nil)
	gateway := awsec2.NewCfnNatGateway(b.stack, jsii.String("NatGateway"), &awsec2.CfnNatGatewayProps{
		AllocationId: address.AttrAllocationId(), SubnetId: n.Publics[0].Ref(), Tags: n.Name("nat"),
	})
	in(gateway)
	out := awsec2.NewCfnRoute(b.stack, jsii.String("PrivateRoute"), &awsec2.CfnRouteProps{
		RouteTableId: routes.Ref(), DestinationCidrBlock: jsii.String("0.0.0.0/0"), NatGatewayId: gateway.Ref(),
	})
	in(out)
	var privates []fargate.Subnet
	for i := range 2 {
		privates = append(privates, n.Subnet(fmt.Sprintf("PrivateSubnet%d", i+1), i+2, i, routes, out, b.p.hasNAT))
	}
	return routes, privates
}

// makeFlowLogs records the connections of a new VPC, if the customer wants that.
func (b *builder) makeFlowLogs() {
	in := func(r awscdk.CfnResource) { r.CfnOptions().SetCondition(b.p.hasFlowLogs) }
	group := awslogs.NewCfnLogGroup(b.stack, jsii.String("FlowLogGroup"), &awslogs.CfnLogGroupProps{
		LogGroupName: jsii.String("/fairlead/" + *b.p.installID.ValueAsString() + "/flows"), RetentionInDays: b.p.logDays.ValueAsNumber(), KmsKeyId: b.logKey(),
	})
	in(group)
	b.flowLog = group
	group.ApplyRemovalPolicy(awscdk.RemovalPolicy_DESTROY, nil)
	role := awsiam.NewCfnRole(b.stack, jsii.String("FlowLogRole"), &awsiam.CfnRoleProps{
		Description: jsii.String("Fairlead: writes the flow logs of the runner's VPC"), Path: jsii.String(b.ownPath()), PermissionsBoundary: b.boundary.Ref(),
		// Without the conditions, flow logs of another account could use the role.
		AssumeRolePolicyDocument: policy.Trust("vpc-flow-logs.amazonaws.com", map[string]map[string]any{
			"StringEquals": {"aws:SourceAccount": b.account}, "ArnLike": {"aws:SourceArn": b.arn("ec2", "vpc-flow-log/*")}}),
		Policies: []*awsiam.CfnRole_PolicyProperty{{PolicyName: jsii.String("write"), PolicyDocument: policy.Document(policy.Statement{Sid: "WriteFlowLogs", Actions: []string{"logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"}, Resources: []string{*group.AttrArn()}})}},
	})
	in(role)
	in(awsec2.NewCfnFlowLog(b.stack, jsii.String("FlowLog"), &awsec2.CfnFlowLogProps{
		ResourceId: b.network.vpc.Ref(), ResourceType: jsii.String("VPC"), TrafficType: jsii.String("ALL"), MaxAggregationInterval: jsii.Number(600),
		LogDestinationType: jsii.String("cloud-watch-logs"), LogGroupName: group.Ref(), DeliverLogsPermissionArn: role.AttrArn(),
	}))
}
