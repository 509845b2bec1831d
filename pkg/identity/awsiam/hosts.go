package awsiam

import (
	"slices"
	"strings"
)

// Endpoint is one regional endpoint of STS.
type Endpoint struct {
	Host      string
	Region    string // of the signature's credential scope
	Partition string // of the ARNs in its answers
}

// partitions has the regional endpoints of STS by partition, from the AWS SDK for Go
// (service/sts 1.51.7, its internal endpoints). The global host sts.amazonaws.com is
// missing: it answers from one region, and AWS advises against it. The isolated
// partitions are missing too: they cannot be reached from outside. Add new regions here.
var partitions = [...]struct{ name, prefix, suffix, regions string }{
	{"aws", "sts.", ".amazonaws.com", "af-south-1 ap-east-1 ap-east-2 ap-northeast-1 ap-northeast-2 ap-northeast-3 ap-south-1 ap-south-2 " +
		"ap-southeast-1 ap-southeast-2 ap-southeast-3 ap-southeast-4 ap-southeast-5 ap-southeast-6 ap-southeast-7 " +
		"ca-central-1 ca-west-1 eu-central-1 eu-central-2 eu-north-1 eu-south-1 eu-south-2 eu-west-1 eu-west-2 eu-west-3 " +
		"il-central-1 me-central-1 me-south-1 mx-central-1 sa-east-1 us-east-1 us-east-2 us-west-1 us-west-2"},
	{"aws", "sts-fips.", ".amazonaws.com", "us-east-1 us-east-2 us-west-1 us-west-2"},
	{"aws-cn", "sts.", ".amazonaws.com.cn", "cn-north-1 cn-northwest-1"},
	// In GovCloud the ordinary hosts are the FIPS hosts.
	{"aws-us-gov", "sts.", ".amazonaws.com", "us-gov-east-1 us-gov-west-1"},
	{"aws-eusc", "sts.", ".amazonaws.eu", "eusc-de-east-1"},
}

// Endpoints lists every endpoint for which a runner can make a proof.
func Endpoints() []Endpoint {
	var all []Endpoint
	for _, p := range partitions {
		for region := range strings.FieldsSeq(p.regions) {
			all = append(all, Endpoint{Host: p.prefix + region + p.suffix, Region: region, Partition: p.name})
		}
	}
	return all
}

// EndpointOf returns the endpoint of a region. With fips it returns the endpoint with
// FIPS-validated cryptography; in GovCloud the ordinary endpoint has it. It reports false
// if the region has no such endpoint.
func EndpointOf(region string, fips bool) (Endpoint, bool) {
	var found Endpoint
	for _, e := range Endpoints() {
		if e.Region != region {
			continue
		}
		if strings.HasPrefix(e.Host, "sts-fips.") == fips {
			return e, true
		}
		if e.Partition == "aws-us-gov" {
			found = e
		}
	}
	return found, found.Host != ""
}

// endpointAt returns the endpoint with exactly this host: the same case, without a
// final dot, without a port.
func endpointAt(host string) (Endpoint, bool) {
	for _, e := range Endpoints() {
		if e.Host == host {
			return e, true
		}
	}
	return Endpoint{}, false
}

func isPartition(name string) bool {
	return slices.ContainsFunc(Endpoints(), func(e Endpoint) bool { return e.Partition == name })
}
