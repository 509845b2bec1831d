package control

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/jsii-runtime-go"

	"github.com/fairlead/fairlead/infra/internal/fargate"
)

// Network is where a task of the control plane runs: in VPC and Subnets. If they are empty,
// the stack makes a VPC for the task.
type Network struct {
	VPC      string
	Subnets  []string
	PublicIP bool // needed if Subnets have no other route to the internet
}

var (
	vpcPattern    = regexp.MustCompile(`^vpc-([0-9a-f]{8}|[0-9a-f]{17})$`)
	subnetPattern = regexp.MustCompile(`^subnet-([0-9a-f]{8}|[0-9a-f]{17})$`)
)

// check validates the network. key begins the names of its keys in the context.
func (n Network) check(key string) error {
	switch {
	case n.VPC != "" && !vpcPattern.MatchString(n.VPC):
		return fmt.Errorf("%sVpc %q is not the id of a VPC", key, n.VPC)
	case (n.VPC == "") != (len(n.Subnets) == 0):
		return fmt.Errorf("give both %[1]sVpc and %[1]sSubnets, or none", key)
	case n.VPC == "" && n.PublicIP:
		return fmt.Errorf("%[1]sPublicIp needs %[1]sSubnets; in a VPC of the stack the task always has a public address", key)
	}
	for _, s := range n.Subnets {
		if !subnetPattern.MatchString(s) {
			return fmt.Errorf("%sSubnets: %q is not the id of a subnet", key, s)
		}
	}
	return nil
}

// place is the network in which a task runs.
type place struct {
	vpc      *string
	subnets  []*string
	publicIP string
	ways     []awscdk.CfnResource // the task depends on these
}

// place returns the vendor's VPC and subnets if the settings name them. Otherwise it makes
// a VPC, which it also returns. The new VPC has no NAT gateway, because a NAT gateway costs
// more than the task.
func (b *builder) place(n Network, prefix, label, cidr string) (place, awsec2.CfnVPC) {
	if n.VPC != "" {
		out := place{vpc: jsii.String(n.VPC), publicIP: "DISABLED"}
		if n.PublicIP {
			out.publicIP = "ENABLED"
		}
		for _, s := range slices.Sorted(slices.Values(n.Subnets)) {
			out.subnets = append(out.subnets, jsii.String(s))
		}
		return out, nil
	}
	own := &fargate.Network{Stack: b.stack, Prefix: prefix, Label: label, CIDR: jsii.String(cidr)}
	own.Make()
	own.ShortWay(own.Routes.Ref())
	out := place{vpc: own.VPC.Ref(), publicIP: "ENABLED"}
	for _, s := range own.Publics {
		out.subnets, out.ways = append(out.subnets, s.Ref()), append(out.ways, s.Association)
	}
	return out, own.VPC
}
