package fargate

import (
	"fmt"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/jsii-runtime-go"
)

// Network is a VPC without incoming connections, with two public subnets in two zones.
// Each subnet uses a quarter of the VPC's addresses, so there is space for two more
// subnets.
type Network struct {
	Stack  awscdk.Stack
	Prefix string // of logical ids
	Label  string // of the names that people read
	CIDR   *string
	If     awscdk.CfnCondition // nil: made unconditionally

	VPC        awsec2.CfnVPC
	Attachment awsec2.CfnVPCGatewayAttachment // of the internet gateway
	Routes     awsec2.CfnRouteTable           // of the public subnets
	Publics    []Subnet
}

// Subnet is a subnet and its association with a route table. The routes work only
// after the association exists.
type Subnet struct {
	awsec2.CfnSubnet
	Association awsec2.CfnSubnetRouteTableAssociation
}

func in(r awscdk.CfnResource, c awscdk.CfnCondition) {
	if c != nil {
		r.CfnOptions().SetCondition(c)
	}
}

func (n *Network) id(s string) *string { return jsii.String(n.Prefix + s) }

// Name returns the Name tag of a part of the network.
func (n *Network) Name(s string) *[]*awscdk.CfnTag {
	return &[]*awscdk.CfnTag{{Key: jsii.String("Name"), Value: jsii.String(n.Label + " " + s)}}
}

// Make makes the VPC and its public subnets.
func (n *Network) Make() {
	n.VPC = awsec2.NewCfnVPC(n.Stack, n.id("Vpc"), &awsec2.CfnVPCProps{
		CidrBlock: n.CIDR, EnableDnsHostnames: jsii.Bool(true), EnableDnsSupport: jsii.Bool(true), Tags: n.Name("vpc"),
	})
	in(n.VPC, n.If)
	gateway := awsec2.NewCfnInternetGateway(n.Stack, n.id("InternetGateway"), &awsec2.CfnInternetGatewayProps{Tags: n.Name("gateway")})
	in(gateway, n.If)
	n.Attachment = awsec2.NewCfnVPCGatewayAttachment(n.Stack, n.id("InternetGatewayAttachment"), &awsec2.CfnVPCGatewayAttachmentProps{
		VpcId: n.VPC.Ref(), InternetGatewayId: gateway.Ref(),
	})
	in(n.Attachment, n.If)
	n.Routes = n.Table("PublicRoutes", n.If)
	out := awsec2.NewCfnRoute(n.Stack, n.id("PublicRoute"), &awsec2.CfnRouteProps{
		RouteTableId: n.Routes.Ref(), DestinationCidrBlock: jsii.String("0.0.0.0/0"), GatewayId: gateway.Ref(),
	})
	in(out, n.If)
	out.AddResourceDependency(n.Attachment, nil)
	for i := range 2 {
		n.Publics = append(n.Publics, n.Subnet(fmt.Sprintf("PublicSubnet%d", i+1), i, i, n.Routes, out, n.If))
	}
}

// Table makes a route table.
func (n *Network) Table(id string, when awscdk.CfnCondition) awsec2.CfnRouteTable {
	t := awsec2.NewCfnRouteTable(n.Stack, n.id(id), &awsec2.CfnRouteTableProps{VpcId: n.VPC.Ref(), Tags: n.Name(id)})
	in(t, when)
	return t
}

// Subnet makes a subnet from one quarter of the network, in one zone of the region.
// route is the route to the internet in routes; the association depends on it.
func (n *Network) Subnet(id string, quarter, zone int, routes awsec2.CfnRouteTable, route awsec2.CfnRoute, when awscdk.CfnCondition) Subnet {
	s := awsec2.NewCfnSubnet(n.Stack, n.id(id), &awsec2.CfnSubnetProps{
		VpcId: n.VPC.Ref(), CidrBlock: awscdk.Fn_Select(jsii.Number(quarter), awscdk.Fn_Cidr(n.CIDR, jsii.Number(4), jsii.String("6"))),
		AvailabilityZone:    awscdk.Fn_Select(jsii.Number(zone), awscdk.Fn_GetAzs(jsii.String(""))),
		MapPublicIpOnLaunch: jsii.Bool(false), Tags: n.Name(id),
	})
	in(s, when)
	association := awsec2.NewCfnSubnetRouteTableAssociation(n.Stack, n.id(id+"Routes"), &awsec2.CfnSubnetRouteTableAssociationProps{
		SubnetId: s.Ref(), RouteTableId: routes.Ref(),
	})
	in(association, when)
	association.AddResourceDependency(route, nil)
	return Subnet{s, association}
}

// ShortWay makes a gateway endpoint for S3, which is free. Transfers of states and
// image layers go through this endpoint.
func (n *Network) ShortWay(tables ...any) {
	in(awsec2.NewCfnVPCEndpoint(n.Stack, n.id("S3Endpoint"), &awsec2.CfnVPCEndpointProps{
		VpcId: n.VPC.Ref(), ServiceName: jsii.String("com.amazonaws." + *n.Stack.Region() + ".s3"), VpcEndpointType: jsii.String("Gateway"), RouteTableIds: &tables,
	}), n.If)
}

// OnlyOut makes the security group of a runner. It permits no incoming
// connections, and outgoing HTTPS only. The parameter to is the text for the
// destinations in the rule's description. EC2 permits only some characters in a
// description, and no apostrophe.
func OnlyOut(stack awscdk.Stack, id string, vpc *string, to string) awsec2.CfnSecurityGroup {
	return awsec2.NewCfnSecurityGroup(stack, jsii.String(id), &awsec2.CfnSecurityGroupProps{
		GroupDescription: jsii.String("Fairlead runner: nothing comes in, HTTPS goes out"), VpcId: vpc,
		SecurityGroupEgress: []*awsec2.CfnSecurityGroup_EgressProperty{{
			IpProtocol: jsii.String("tcp"), FromPort: jsii.Number(443), ToPort: jsii.Number(443), CidrIp: jsii.String("0.0.0.0/0"), Description: jsii.String("HTTPS to " + to),
		}},
	})
}
