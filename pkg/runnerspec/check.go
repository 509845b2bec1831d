package runnerspec

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Limits of the clouds and of Fairlead.
const (
	maxSubnets        = 16   // limit of awsvpcConfiguration
	maxSecurityGroups = 5    // limit of awsvpcConfiguration
	maxDescription    = 2000 // bytes, the same as in an app
	maxConcurrency    = 1000
	maxWarmTasks      = 50
	maxGroupDepth     = 20 // names in the path of a group
)

// checks returns the checks that the tags of fields name. A message quotes a text only if the text cannot hold a
// secret.
func (c *checker) checks() map[string]yamlnode.Check {
	type check = yamlnode.Check
	return map[string]check{
		"nonempty":       {Pattern: `.`, Wants: "a non-empty text"},
		"region":         {Pattern: `^[a-z]{2,}(-[a-z]+)+-[0-9]{1,2}$`, Wants: "an AWS region such as eu-west-1"},
		"subnets":        {Pattern: `^subnet-[0-9a-f]{8,17}$`, Wants: "a subnet's id such as subnet-0123456789abcdef0", Max: maxSubnets},
		"securitygroups": {Pattern: `^sg-[0-9a-f]{8,17}$`, Wants: "a security group's id such as sg-0123456789abcdef0", Max: maxSecurityGroups},
		"rolearn":        {Pattern: `^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}$`, Wants: "a role's ARN such as arn:aws:iam::123456789012:role/name"},
		"secretarn":      {Pattern: `^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:\S{1,512}$`, Wants: "the ARN of a Secrets Manager secret"},
		"launchtype":     {Pattern: `^(fargate|fargate-spot|ec2)$`, Wants: "fargate, fargate-spot or ec2"},
		"pullpolicy":     {Pattern: `^(Always|IfNotPresent|Never)$`, Wants: "Always, IfNotPresent or Never"},
		"dns":            {Pattern: `^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`, Wants: "a Kubernetes name: lower-case letters, digits, hyphens and dots"},
		"uuid":           {Pattern: `^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`, Wants: "a UUID"},
		"gcpaudience":    {Pattern: `^//iam\.googleapis\.com/projects/[0-9]+/locations/[a-z0-9-]+/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+$`, Wants: "the full name of a workload identity provider, which begins with //iam.googleapis.com/projects/"},
		"gcpaccount":     {Pattern: `^[a-z0-9-]+@[a-z0-9.:-]+\.iam\.gserviceaccount\.com$`, Wants: "the e-mail address of a service account, which ends with .iam.gserviceaccount.com"},
		"dockerhost":     {Pattern: `^(unix:///\S+|tcp://[^\s/@]+|ssh://[^\s/:]+)$`, Wants: "unix:///path, tcp://host:port or ssh://user@host"},
		"volume":         {Pattern: `^/[^:\s]*:/[^:\s]+(:r[ow])?$`, Wants: "/host/folder:/container/folder, with :ro at the end for read-only"},
		"abspath":        {Pattern: `^/`, Wants: "an absolute path"},
		"bucket":         {Pattern: `^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`, Wants: "the name of a bucket"},
		"gcsbucket":      {Pattern: `^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$`, Wants: "the name of a bucket"},
		"storageaccount": {Pattern: `^[a-z0-9]{3,24}$`, Wants: "3 to 24 lower-case letters and digits"},
		"container":      {Pattern: `^[a-z0-9](-?[a-z0-9]){2,62}$`, Wants: "3 to 63 lower-case letters, digits and single hyphens"},
		"account":        {Pattern: `^[0-9]{12}$`, Wants: "an AWS account of 12 digits"},
		"repository":     {Pattern: `^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`, Wants: "lower-case names with single slashes between them, none at the ends", Max: 100},
		"variable":       {Pattern: variableName, Wants: "the name of an environment variable", Func: func(f yamlnode.Field, where string) { c.variable(f.Value.Value.(string), where) }},
		"version":        {Pattern: `^[0-9A-Za-z][0-9A-Za-z.+_-]{0,62}$`, Wants: "a version such as v1.2.3"},
		"prefix": {Pattern: `^[A-Za-z0-9!_.'()-]+(/[A-Za-z0-9!_.'()-]+)*$`, Wants: "names with single slashes between them, none at the ends",
			Schema: yamlnode.Schema{"not": yamlnode.Schema{"type": "string", "pattern": `(^|/)\.\.?(/|$)`}},
			Func: c.text("without . and ..", func(text string) bool {
				return !strings.Contains("/"+text+"/", "/./") && !strings.Contains("/"+text+"/", "/../")
			})},
		"path": {Schema: yamlnode.Schema{"pattern": `^[a-z0-9-]+(/[a-z0-9-]+)*$`}, Func: c.text("names with single slashes between them, such as customers/acme", isGroupPath)},

		"name":        {Func: c.name, Schema: yamlnode.Schema{"pattern": fairlead.NamePattern}},
		"description": {Max: maxDescription},
		"warmtasks":   {Func: c.upTo(maxWarmTasks), Schema: yamlnode.Schema{"minimum": 1, "maximum": maxWarmTasks}},
		"concurrency": {Func: c.upTo(maxConcurrency), Schema: yamlnode.Schema{"minimum": 1, "maximum": maxConcurrency}},
		"pids": {Func: func(f yamlnode.Field, where string) {
			if i, err := f.Value.Value.(json.Number).Int64(); err != nil || i < -1 || i == 0 {
				c.Report(where, "invalid-value", where+" must be above 0, or -1 for no limit", "")
			}
		}, Schema: yamlnode.Schema{"minimum": -1}},
		"base64":    {Func: c.base64},
		"url":       c.url("https", "http"),
		"https":     c.url("https"),
		"proxy":     c.url("https", "http", "socks5"),
		"extrahost": {Func: c.text("name:address", isExtraHost)},
		"image":     {Func: func(f yamlnode.Field, where string) { c.image(f.Value.Value.(string), where) }},
		"dockerimage": {Func: func(f yamlnode.Field, where string) {
			if text := f.Value.Value.(string); !imageID.MatchString(text) {
				c.image(text, where)
			}
		}},
		"permittedimage": {Func: c.text("an image's name without tag and digest, such as registry.example.com/tools or registry.example.com/acme/*", isImagePattern),
			Schema: yamlnode.Schema{"items": yamlnode.Schema{"pattern": imagePattern.String()}}},
		"imagedefinition": {Pattern: `.`, Wants: "the ARN or family of a task definition", Schema: yamlnode.Schema{"propertyNames": yamlnode.Schema{"pattern": imageByDigest.String()}},
			Func: func(f yamlnode.Field, where string) { c.imageDefinition(f.Key, where) }},
		"environment": {Func: func(f yamlnode.Field, where string) { c.variable(f.Key, where) }, Schema: keys(variableName, anyCase(reserved))},
		"secret":      {Func: c.secret},
		"policy":      {Func: c.policy},
		"ledger":      {Func: c.ledger},
		"reference":   {Func: c.seed},
		"labels":      {Func: c.label, Schema: keys(labelKey, "fairlead")},
		"registry":    c.registryURL(),
		"podtemplate": {Func: func(f yamlnode.Field, where string) { c.podTemplate(f.Value, where) }},
	}
}

// text returns a check for a rule that a pattern cannot express.
func (c *checker) text(wants string, ok func(text string) bool) func(yamlnode.Field, string) {
	return func(f yamlnode.Field, where string) {
		if text := f.Value.Value.(string); !ok(text) {
			c.Report(where, "invalid-value", fmt.Sprintf("%s must be %s, not %s", where, wants, yamlnode.Quote(text)), "")
		}
	}
}

func isGroupPath(text string) bool {
	names := strings.Split(text, "/")
	return len(names) <= maxGroupDepth && !slices.ContainsFunc(names, func(s string) bool { return fairlead.CheckName("group", s) != nil })
}

func isExtraHost(text string) bool {
	host, address, _ := strings.Cut(text, ":")
	_, err := netip.ParseAddr(strings.Trim(address, "[]"))
	return host != "" && (err == nil || address == "host-gateway")
}

func (c *checker) name(f yamlnode.Field, where string) {
	if text := f.Value.Value.(string); fairlead.CheckName("runner", text) != nil {
		c.Report(where, "invalid-name", fmt.Sprintf("%s is not a valid name of a runner", yamlnode.Quote(text)),
			"Use 1 to 63 lower-case letters, digits and hyphens; begin with a letter, end with a letter or digit.")
	}
}

// upTo returns a check that refuses numbers below 1 and above most.
func (c *checker) upTo(most int) func(f yamlnode.Field, where string) {
	return func(f yamlnode.Field, where string) {
		if n, err := strconv.Atoi(string(f.Value.Value.(json.Number))); err != nil || n < 1 || n > most {
			c.Report(where, "invalid-value", fmt.Sprintf("%s must be from 1 to %d", where, most), "")
		}
	}
}

func (c *checker) base64(f yamlnode.Field, where string) {
	text := f.Value.Value.(string)
	if _, err := base64.StdEncoding.DecodeString(text); err != nil || text == "" {
		c.Report(where, "invalid-value", where+" is not base64", maskHint(text))
	}
}

func maskHint(text string) string {
	if text == Masked {
		return "It is the mask of a secret that was read back. In an update, leave the field out to keep the secret. For a new runner, set the secret."
	}
	return ""
}

// url returns the check of a URL with one of the schemes. The URL of a proxy may also use socks5, and may have a query.
func (c *checker) url(schemes ...string) yamlnode.Check {
	proxy := slices.Contains(schemes, "socks5")
	pattern := `^(` + anyCase(strings.Join(schemes, "|")) + `)://[^/?#@]+([/?#]|$)`
	return yamlnode.Check{Schema: yamlnode.Schema{"pattern": pattern}, Func: func(f yamlnode.Field, where string) {
		u, err := url.Parse(f.Value.Value.(string))
		switch {
		case err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme):
			c.Report(where, "invalid-value", fmt.Sprintf("%s must be a URL that begins with %s://", where, strings.Join(schemes, ":// or ")), "")
		case u.User != nil:
			hint := ""
			if strings.Contains(where, ".proxy.") {
				hint = "Set the variable in secrets, as a reference to a secret that holds the URL."
			}
			c.Report(where, "secret-in-plain", where+" holds a user or a password, but its value is shown", hint)
		case !proxy && (u.RawQuery != "" || u.Fragment != ""):
			c.Report(where, "invalid-value", where+" must have no query and no fragment", "")
		}
	}}
}

// registryURL returns the check of the URL of a registry.
func (c *checker) registryURL() yamlnode.Check {
	of := c.url("https", "http")
	return yamlnode.Check{Schema: yamlnode.Schema{"pattern": `^[hH][tT][tT][pP][sS]?://[^/?#@]+/?$`}, Func: func(f yamlnode.Field, where string) {
		of.Func(f, where)
		if u, err := url.Parse(f.Value.Value.(string)); err == nil && u.User == nil && strings.Trim(u.Path, "/") != "" && !c.Bad(where) {
			c.Report(where, "invalid-value", where+" must have no path", "Put the path into prefix.")
		}
	}}
}

// anyCase returns a pattern that matches the text in any case. Schemas have no flag for this.
func anyCase(text string) string {
	return regexp.MustCompile(`[a-zA-Z]`).ReplaceAllStringFunc(text, func(c string) string { return "[" + strings.ToUpper(c) + strings.ToLower(c) + "]" })
}

// The patterns of map keys.
const (
	variableName = `^[A-Za-z_][A-Za-z0-9_]*$`
	labelKey     = `^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$`
)

// keys returns a schema of the allowed keys; keys must not begin with reserved.
func keys(pattern, reserved string) yamlnode.Schema {
	return yamlnode.Schema{"propertyNames": yamlnode.Schema{"pattern": pattern, "not": yamlnode.Schema{"pattern": "^" + reserved}}}
}

// imageByTag is the code of the warning about an image that has no digest.
const imageByTag = "image-by-tag"

// image checks an image reference. It warns about a tag, because a tag may later refer to another image.
func (c *checker) image(text, where string) {
	ref, err := name.ParseReference(text)
	if err != nil {
		c.Report(where, "invalid-image", fmt.Sprintf("%s must be an image's reference, not %s", where, yamlnode.Quote(text)),
			"Such as registry.example.com/fairlead/runner@sha256:…")
		return
	}
	if _, ok := ref.(name.Digest); !ok {
		c.warn(where, imageByTag, fmt.Sprintf("the image %s has a tag, which may later refer to another image", yamlnode.Quote(text)),
			"Use its digest: "+ref.Context().Name()+"@sha256:…")
	}
}

// imageDefinition checks the image of a task definition.
func (c *checker) imageDefinition(image, where string) {
	if !imageByDigest.MatchString(image) {
		c.Report(where, "invalid-image", fmt.Sprintf("%s must be an image by digest, not %s", where, yamlnode.Quote(image)), "Such as registry.example.com/acme/tools@sha256:…, as app.yaml names it.")
	}
}

// label checks one entry of a map of labels.
func (c *checker) label(f yamlnode.Field, where string) {
	value := f.Value.Value.(string)
	if !regexp.MustCompile(labelKey).MatchString(f.Key) ||
		!regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`).MatchString(value) {
		c.Report(where, "invalid-value", fmt.Sprintf("%s is not a valid label", yamlnode.Quote(f.Key+"="+value)),
			"Keys and values are up to 63 letters, digits, dots, hyphens and underscores.")
	} else if strings.HasPrefix(f.Key, "fairlead") {
		c.Report(where, "reserved-name", fmt.Sprintf("the label %s is reserved", yamlnode.Quote(f.Key)), "Labels that begin with fairlead are set by Fairlead.")
	}
}

// variable checks the name of an environment variable.
func (c *checker) variable(key, where string) {
	switch {
	case !regexp.MustCompile(variableName).MatchString(key):
		c.Report(where, "invalid-name", fmt.Sprintf("%s is not a valid name of an environment variable", yamlnode.Quote(key)), "")
	case strings.HasPrefix(strings.ToUpper(key), reserved):
		c.Report(where, "reserved-name", fmt.Sprintf("the variable %s is reserved", yamlnode.Quote(key)), "Variables that begin with "+reserved+" are set by Fairlead.")
	}
}

// checkJob checks the rules that cover more than one field, for the fields that the jobs of all kinds share.
func (c *checker) checkJob(r Configuration) {
	const where = "runner_configuration.job"
	j := r.job()
	row, _ := r.Kind().row()
	for _, key := range slices.Sorted(maps.Keys(j.Secrets)) {
		path := where + ".secrets." + key
		if _, twice := j.Environment[key]; twice {
			c.Report(path, "duplicate-name", fmt.Sprintf("the variable %s is in environment and in secrets", yamlnode.Quote(key)), "Remove one of the two.")
		}
		// The message does not quote the value, because some people write the secret itself here by mistake.
		if !regexp.MustCompile(row.secret.pattern).MatchString(j.Secrets[key]) {
			c.Report(path, "invalid-value", path+" must be "+row.secret.wants, "A configuration holds references to secrets, never secrets.")
		}
	}
	if of := r.common(); of.Version != "" && of.Channel != "" {
		c.Report("runner_configuration.channel", "excluded", "a runner cannot have both a version and a channel", "Remove one of the two.")
	}
	if p := j.Proxy; p != nil {
		for _, v := range []struct{ name, value string }{{"HTTP_PROXY", p.HTTP}, {"HTTPS_PROXY", p.HTTPS}, {"NO_PROXY", p.No}} {
			if _, set := j.Secrets[v.name]; v.value != "" && set {
				c.Report(where+".proxy", "duplicate-name", fmt.Sprintf("both the proxy and the secrets set %s", v.name), "Remove one of the two.")
			}
		}
	}
}
