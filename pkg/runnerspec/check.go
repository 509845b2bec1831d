package runnerspec

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamldoc"
)

// Limits of the clouds, and one of ours.
const (
	maxSubnets        = 16   // of awsvpcConfiguration
	maxSecurityGroups = 5    // of awsvpcConfiguration
	maxDescription    = 2000 // bytes, as in an app
	maxConcurrency    = 1000
	maxGroupDepth     = 20                // as groups nest
	maxFargateStop    = 120 * time.Second // of stopTimeout on Fargate
)

// form is what the text of a field must look like.
type form struct{ pattern, wants string }

func forms() map[string]form {
	return map[string]form{
		"nonempty":       {`.`, "something"},
		"region":         {`^[a-z]{2,}(-[a-z]+)+-[0-9]{1,2}$`, "an AWS region such as eu-west-1"},
		"subnets":        {`^subnet-[0-9a-f]{8,17}$`, "a subnet's id such as subnet-0123456789abcdef0"},
		"securitygroups": {`^sg-[0-9a-f]{8,17}$`, "a security group's id such as sg-0123456789abcdef0"},
		"rolearn":        {`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}$`, "a role's ARN such as arn:aws:iam::123456789012:role/name"},
		"secretarn":      {`^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:\S{1,512}$`, "the ARN of a Secrets Manager secret"},
		"launchtype":     {`^(fargate|fargate-spot|ec2)$`, "fargate, fargate-spot or ec2"},
		"pullpolicy":     {`^(Always|IfNotPresent|Never)$`, "Always, IfNotPresent or Never"},
		"dns":            {`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`, "a Kubernetes name: lower-case letters, digits, hyphens and dots"},
		"uuid":           {`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`, "a UUID"},
		"gcpaudience":    {`^//iam\.googleapis\.com/projects/[0-9]+/locations/[a-z0-9-]+/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+$`, "the full name of a workload identity provider, which begins with //iam.googleapis.com/projects/"},
		"gcpaccount":     {`^[a-z0-9-]+@[a-z0-9.:-]+\.iam\.gserviceaccount\.com$`, "the e-mail address of a service account, which ends with .iam.gserviceaccount.com"},
		"dockerhost":     {`^(unix:///\S+|tcp://[^\s/@]+|ssh://[^\s/:]+)$`, "unix:///path, tcp://host:port or ssh://user@host"},
		"volume":         {`^/[^:\s]*:/[^:\s]+(:r[ow])?$`, "/host/folder:/container/folder, with :ro behind it to read only"},
		"abspath":        {`^/`, "an absolute path"},
		"bucket":         {`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`, "the name of a bucket"},
		"gcsbucket":      {`^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$`, "the name of a bucket"},
		"storageaccount": {`^[a-z0-9]{3,24}$`, "3 to 24 lower-case letters and digits"},
		"container":      {`^[a-z0-9](-?[a-z0-9]){2,62}$`, "3 to 63 lower-case letters, digits and single hyphens"},
		"version":        {`^[0-9A-Za-z][0-9A-Za-z.+_-]{0,62}$`, "a version such as v1.2.3"},
		"prefix":         {`^[A-Za-z0-9!_.'()-]+(/[A-Za-z0-9!_.'()-]+)*$`, "names with single slashes between them, none at the ends"},
	}
}

// text checks one text. Messages quote it only where it cannot hold a secret.
func (c *checker) text(check, text, where string) {
	invalid := func(wants string) {
		c.report(where, "invalid-value", fmt.Sprintf("%s must be %s, not %s", where, wants, yamldoc.Quote(text)), "")
	}
	if f, ok := forms()[check]; ok {
		if !regexp.MustCompile(f.pattern).MatchString(text) || strings.ContainsAny(text, "\x00\n\r") {
			invalid(f.wants)
		} else if check == "prefix" && slices.ContainsFunc(strings.Split(text, "/"), func(s string) bool { return s == "." || s == ".." }) {
			invalid("without . and ..")
		}
		return
	}
	switch check {
	case "name":
		if err := fairlead.CheckName("runner", text); err != nil {
			c.report(where, "invalid-name", fmt.Sprintf("%s is not a valid name of a runner", yamldoc.Quote(text)),
				"Use 1 to 63 lower-case letters, digits and hyphens; begin with a letter, end with a letter or digit.")
		}
	case "description":
		if len(text) > maxDescription {
			c.report(where, "invalid-value", fmt.Sprintf("%s is longer than %d bytes", where, maxDescription), "")
		}
	case "path":
		names := strings.Split(text, "/")
		if len(names) > maxGroupDepth || slices.ContainsFunc(names, func(s string) bool { return fairlead.CheckName("group", s) != nil }) {
			invalid("names with single slashes between them, such as customers/acme")
		}
	case "base64":
		if _, err := base64.StdEncoding.DecodeString(text); err != nil || text == "" {
			c.report(where, "invalid-value", where+" is not base64", maskHint(text))
		}
	case "url", "https", "proxy":
		c.url(check, text, where)
	case "extrahost":
		host, address, _ := strings.Cut(text, ":")
		_, err := netip.ParseAddr(strings.Trim(address, "[]"))
		if host == "" || err != nil && address != "host-gateway" {
			invalid("name:address")
		}
	case "image":
		c.image(text, where)
	default:
		panic("runnerspec: there is no check " + check)
	}
}

func maskHint(text string) string {
	if text == Masked {
		return "It is a secret that was read back. Leave the field out of an update to keep the secret; of a new runner, give it."
	}
	return ""
}

func (c *checker) url(check, text, where string) {
	schemes := []string{"https", "http"}
	switch check {
	case "https":
		schemes = schemes[:1]
	case "proxy":
		schemes = append(schemes, "socks5")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme):
		c.report(where, "invalid-value", fmt.Sprintf("%s must be a URL that begins with %s://", where, strings.Join(schemes, ":// or ")), "")
	case u.User != nil:
		hint := ""
		if check == "proxy" && strings.Contains(where, ".proxy.") {
			hint = "Set the variable in secrets, by reference to one that holds the URL."
		}
		c.report(where, "secret-in-plain", where+" holds a user or a password, and is shown", hint)
	case check != "proxy" && (u.RawQuery != "" || u.Fragment != ""):
		c.report(where, "invalid-value", where+" must have no query and no fragment", "")
	}
}

// image checks a reference to an image, and warns of one that may become
// another.
func (c *checker) image(text, where string) {
	ref, err := name.ParseReference(text)
	if err != nil {
		c.report(where, "invalid-image", fmt.Sprintf("%s must be an image's reference, not %s", where, yamldoc.Quote(text)),
			"Such as registry.example.com/fairlead/runner@sha256:…")
		return
	}
	if _, ok := ref.(name.Digest); !ok {
		c.warn(where, "image-by-tag", fmt.Sprintf("the image %s is named by a tag, which may become another image", yamldoc.Quote(text)),
			"Name it by its digest: "+ref.Context().Name()+"@sha256:…")
	}
}

// atMost checks how many there are.
func (c *checker) atMost(check string, n int, where string) {
	limit := maxSubnets
	if check == "securitygroups" {
		limit = maxSecurityGroups
	}
	if n > limit {
		c.report(where, "invalid-value", fmt.Sprintf("%s has %d items, %d are allowed", where, n, limit), "")
	}
}

// entry checks one entry of a map.
func (c *checker) entry(check, key, value, where string) {
	switch check {
	case "environment":
		c.variable(key, where)
	case "labels":
		if !regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$`).MatchString(key) ||
			!regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`).MatchString(value) {
			c.report(where, "invalid-value", fmt.Sprintf("%s is not a valid label", yamldoc.Quote(key+"="+value)),
				"Keys and values are up to 63 letters, digits, dots, hyphens and underscores.")
		} else if strings.HasPrefix(key, "fairlead") {
			c.report(where, "reserved-name", fmt.Sprintf("the label %s is reserved", yamldoc.Quote(key)), "Labels that begin with fairlead are set by Fairlead.")
		}
	}
}

// variable checks the name of an environment variable.
func (c *checker) variable(key, where string) {
	switch {
	case !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(key):
		c.report(where, "invalid-name", fmt.Sprintf("%s is not a valid name of an environment variable", yamldoc.Quote(key)), "")
	case strings.HasPrefix(strings.ToUpper(key), reserved):
		c.report(where, "reserved-name", fmt.Sprintf("the variable %s is reserved", yamldoc.Quote(key)), "Variables that begin with "+reserved+" are set by Fairlead.")
	}
}

// checkJob checks what the jobs of all kinds have, as far as it takes more than
// one field.
func (c *checker) checkJob(r Configuration) {
	const where = "runner_configuration.job"
	j := r.job()
	secretForm := form{`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9._-]+$`, "name/key of a Kubernetes Secret"}
	switch r.Kind() {
	case AWSECS:
		secretForm = form{`^arn:aws[a-z-]*:(secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:\S+|ssm:[a-z0-9-]+:[0-9]{12}:parameter/\S+)$`, "the ARN of a Secrets Manager secret or an SSM parameter"}
	case Docker, Local:
		secretForm = form{`^/[^\x00\n]+$`, "the absolute path of a file"}
	}
	for _, key := range slices.Sorted(maps.Keys(j.Secrets)) {
		path := where + ".secrets." + key
		if _, twice := j.Environment[key]; twice {
			c.report(path, "duplicate-name", fmt.Sprintf("the variable %s is in environment and in secrets", yamldoc.Quote(key)), "Remove one of the two.")
		}
		// Not quoted: people write the secret itself here.
		if !regexp.MustCompile(secretForm.pattern).MatchString(j.Secrets[key]) {
			c.report(path, "invalid-value", path+" must be "+secretForm.wants, "A configuration holds references to secrets, never secrets.")
		}
	}
	if of := r.common(); of.Version != "" && of.Channel != "" {
		c.report("runner_configuration.channel", "excluded", "a runner has a version or follows a channel", "Remove one of the two.")
	}
	if p := j.Proxy; p != nil {
		for _, v := range []struct{ name, value string }{{"HTTP_PROXY", p.HTTP}, {"HTTPS_PROXY", p.HTTPS}, {"NO_PROXY", p.No}} {
			if _, set := j.Secrets[v.name]; v.value != "" && set {
				c.report(where+".proxy", "duplicate-name", fmt.Sprintf("the proxy sets %s, and so do the secrets", v.name), "Remove one of the two.")
			}
		}
	}
}
