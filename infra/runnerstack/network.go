package runnerstack

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/jsii-runtime-go"
)

// network is where the runner is.
type network struct {
	subnets  awscdk.IResolvable // a list
	publicIP awscdk.IResolvable
	group    awsec2.CfnSecurityGroup
	vpc      awsec2.CfnVPC
	publics  []awsec2.CfnSubnet
	way      awscdk.IResolvable // names what must be there before a task starts
}

// makeNetwork makes a VPC with two subnets that nothing can connect into, with
// or without a NAT gateway, unless the customer has a VPC for it.
func (b *builder) makeNetwork() {
	p := b.p
	in := func(r awscdk.CfnResource, c awscdk.CfnCondition) { r.CfnOptions().SetCondition(c) }
	name := func(s string) *[]*awscdk.CfnTag {
		return &[]*awscdk.CfnTag{{Key: jsii.String("Name"), Value: jsii.String("fairlead-runner " + s)}}
	}

	vpc := awsec2.NewCfnVPC(b.stack, jsii.String("Vpc"), &awsec2.CfnVPCProps{
		CidrBlock: p.vpcCIDR.ValueAsString(), EnableDnsHostnames: jsii.Bool(true), EnableDnsSupport: jsii.Bool(true), Tags: name("vpc"),
	})
	in(vpc, p.newVPC)
	gateway := awsec2.NewCfnInternetGateway(b.stack, jsii.String("InternetGateway"), &awsec2.CfnInternetGatewayProps{Tags: name("gateway")})
	in(gateway, p.newVPC)
	attachment := awsec2.NewCfnVPCGatewayAttachment(b.stack, jsii.String("InternetGatewayAttachment"), &awsec2.CfnVPCGatewayAttachmentProps{
		VpcId: vpc.Ref(), InternetGatewayId: gateway.Ref(),
	})
	in(attachment, p.newVPC)

	table := func(id string, c awscdk.CfnCondition) awsec2.CfnRouteTable {
		t := awsec2.NewCfnRouteTable(b.stack, jsii.String(id), &awsec2.CfnRouteTableProps{VpcId: vpc.Ref(), Tags: name(id)})
		in(t, c)
		return t
	}
	public, private := table("PublicRoutes", p.newVPC), table("PrivateRoutes", p.hasNAT)
	out := awsec2.NewCfnRoute(b.stack, jsii.String("PublicRoute"), &awsec2.CfnRouteProps{
		RouteTableId: public.Ref(), DestinationCidrBlock: jsii.String("0.0.0.0/0"), GatewayId: gateway.Ref(),
	})
	in(out, p.newVPC)
	out.AddResourceDependency(attachment, nil)

	// Four equal parts of the network: two public subnets, two private ones.
	parts := awscdk.Fn_Cidr(p.vpcCIDR.ValueAsString(), jsii.Number(4), jsii.String("6"))
	ways := map[awscdk.CfnCondition][]*string{}
	subnet := func(id string, part float64, zone float64, routes awsec2.CfnRouteTable, route awsec2.CfnRoute, c awscdk.CfnCondition) awsec2.CfnSubnet {
		s := awsec2.NewCfnSubnet(b.stack, jsii.String(id), &awsec2.CfnSubnetProps{
			VpcId: vpc.Ref(), CidrBlock: awscdk.Fn_Select(jsii.Number(part), parts),
			AvailabilityZone:    awscdk.Fn_Select(jsii.Number(zone), awscdk.Fn_GetAzs(jsii.String(""))),
			MapPublicIpOnLaunch: jsii.Bool(false), Tags: name(id),
		})
		in(s, c)
		association := awsec2.NewCfnSubnetRouteTableAssociation(b.stack, jsii.String(id+"Routes"), &awsec2.CfnSubnetRouteTableAssociationProps{
			SubnetId: s.Ref(), RouteTableId: routes.Ref(),
		})
		in(association, c)
		ways[c] = append(ways[c], association.Ref())
		association.AddResourceDependency(route, nil)
		return s
	}
	for i := range 2 {
		b.network.publics = append(b.network.publics, subnet(fmt.Sprintf("PublicSubnet%d", i+1), float64(i), float64(i), public, out, p.newVPC))
	}

	address := awsec2.NewCfnEIP(b.stack, jsii.String("NatAddress"), &awsec2.CfnEIPProps{Domain: jsii.String("vpc"), Tags: name("nat")})
	in(address, p.hasNAT)
	address.AddResourceDependency(attachment, nil)
	gatewayNAT := awsec2.NewCfnNatGateway(b.stack, jsii.String("NatGateway"), &awsec2.CfnNatGatewayProps{
		AllocationId: address.AttrAllocationId(), SubnetId: b.network.publics[0].Ref(), Tags: name("nat"),
	})
	in(gatewayNAT, p.hasNAT)
	privateOut := awsec2.NewCfnRoute(b.stack, jsii.String("PrivateRoute"), &awsec2.CfnRouteProps{
		RouteTableId: private.Ref(), DestinationCidrBlock: jsii.String("0.0.0.0/0"), NatGatewayId: gatewayNAT.Ref(),
	})
	in(privateOut, p.hasNAT)

	var privates []awsec2.CfnSubnet
	for i := range 2 {
		privates = append(privates, subnet(fmt.Sprintf("PrivateSubnet%d", i+1), float64(i+2), float64(i), private, privateOut, p.hasNAT))
	}

	// States and image layers take the short way, which costs nothing.
	in(awsec2.NewCfnVPCEndpoint(b.stack, jsii.String("S3Endpoint"), &awsec2.CfnVPCEndpointProps{
		VpcId: vpc.Ref(), ServiceName: jsii.String("com.amazonaws." + b.region + ".s3"), VpcEndpointType: jsii.String("Gateway"),
		RouteTableIds: &[]any{public.Ref(), *awscdk.Token_AsString(onIf(p.hasNAT, private.Ref(), awscdk.Aws_NO_VALUE()), nil)},
	}), p.newVPC)

	b.network.vpc = vpc
	b.network.group = awsec2.NewCfnSecurityGroup(b.stack, jsii.String("RunnerSecurityGroup"), &awsec2.CfnSecurityGroupProps{
		GroupDescription: jsii.String("Fairlead runner: nothing comes in, HTTPS goes out"),
		VpcId:            awscdk.Token_AsString(onIf(p.newVPC, vpc.Ref(), p.vpc.ValueAsString()), nil),
		SecurityGroupEgress: []*awsec2.CfnSecurityGroup_EgressProperty{{
			IpProtocol: jsii.String("tcp"), FromPort: jsii.Number(443), ToPort: jsii.Number(443), CidrIp: jsii.String("0.0.0.0/0"),
			Description: jsii.String("HTTPS to the control plane, to AWS and to what the app's tools talk to"),
		}},
	})
	ids := func(list []awsec2.CfnSubnet) []any { return []any{list[0].Ref(), list[1].Ref()} }
	b.network.subnets = onIf(p.newVPC, onIf(p.hasNAT, ids(privates), ids(b.network.publics)), p.subnets.ValueAsList())
	join := func(list []*string) *string { return awscdk.Fn_Join(jsii.String(" "), &list) }
	b.network.way = onIf(p.newVPC, onIf(p.hasNAT, join(ways[p.hasNAT]), join(ways[p.newVPC])), "existing")
	b.network.publicIP = onIf(p.needsPublicIP, "ENABLED", "DISABLED")
}
