package control

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Props are what may differ between two control planes. The zero value of a
// field is its default, where it has one.
type Props struct {
	Stage     string // part of every name that is not CloudFormation's own choice; required
	Region    string // "": that of the deployment's credentials
	Account   string // "": that of the deployment's credentials
	Functions string // folder with one folder per function, which holds its bootstrap; required

	// Domain is the host name of the API; "" leaves API Gateway's own. With it
	// goes a certificate of the same region, and optionally the Route 53 zone in
	// which the name is made.
	Domain      string
	Certificate string // ARN
	HostedZone  string // id
	AlarmEmail  string // "": alarms go to the topic alone
	RunnerImage string // given to new customers' stacks, by digest
	TemplateURL string // of the published runner stack
	// RunnerDigest and Template are given instead of the two by who publishes in
	// the stack itself: the digest of an image in its registry, and the SHA-256,
	// in hex, of a template in its bucket. Both are known before they are there,
	// so a stack is told all of it at once.
	RunnerDigest string
	Template     string
	MemoryMB     int      // of each function; default 256
	LogDays      int      // that CloudWatch Logs keeps logs of jobs and of functions; default 30
	ArchiveDays  int      // that S3 keeps logs of jobs; default 365
	RateLimit    int      // requests a second of the whole API; default 500
	BurstLimit   int      // requests at once of the whole API; default 1,000
	RunnerReader []string // customers' accounts, which may pull the runner's image and read the template
	// Deletable leaves the tables without protection against deletion: for a first
	// creation, whose rollback could not remove them otherwise. It is to be taken back
	// once the stack is there.
	Deletable bool
	Build     Build
}

// The days that CloudWatch Logs knows as a retention.
var retentions = []int{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}

var (
	stagePattern   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,15}$`)
	accountPattern = regexp.MustCompile(`^[0-9]{12}$`)
	imagePattern   = regexp.MustCompile(`^[^@\s]+@sha256:[0-9a-f]{64}$`)
	digestPattern  = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// FromContext reads Props from the context of a CDK app, in which every value
// is a string. The error names the key that is wrong.
func FromContext(get func(key string) string) (Props, error) {
	p := Props{
		Stage: get("stage"), Region: get("region"), Account: get("account"), Functions: get("functions"),
		Domain: get("domain"), Certificate: get("certificateArn"), HostedZone: get("hostedZoneId"), AlarmEmail: get("alarmEmail"),
		RunnerImage: get("runnerImage"), TemplateURL: get("stackTemplateUrl"), RunnerDigest: get("runnerDigest"),
		RunnerReader: words(get("runnerReaders")),
		Build: Build{Runner: get("buildRunner"), Keys: words(get("buildRunnerKeys")), Size: get("buildRunnerSize"),
			VPC: get("buildRunnerVpc"), Subnets: words(get("buildRunnerSubnets"))},
	}
	protected := true
	for key, field := range map[string]*bool{"buildRunnerPublicIp": &p.Build.PublicIP, "deletionProtection": &protected} {
		switch answer := get(key); answer {
		case "":
		case "true", "false":
			*field = answer == "true"
		default:
			return Props{}, fmt.Errorf("%s is %q; true and false are known", key, answer)
		}
	}
	p.Deletable = !protected
	for key, field := range map[string]*int{
		"functionMemoryMb": &p.MemoryMB, "logRetentionDays": &p.LogDays, "archiveRetentionDays": &p.ArchiveDays,
		"rateLimit": &p.RateLimit, "burstLimit": &p.BurstLimit,
	} {
		text := get(key)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return Props{}, fmt.Errorf("%s is %q, which is no positive number", key, text)
		}
		*field = n
	}
	return p, nil
}

func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// withDefaults checks the props and fills in what is not given.
func (p Props) withDefaults() (Props, error) {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&p.MemoryMB, 256)
	set(&p.LogDays, 30)
	set(&p.ArchiveDays, 365)
	set(&p.RateLimit, 500)
	set(&p.BurstLimit, 1000)
	switch {
	case !stagePattern.MatchString(p.Stage):
		return p, fmt.Errorf("stage %q: use up to 16 lower-case letters, digits and hyphens, beginning with a letter", p.Stage)
	case p.Functions == "":
		return p, fmt.Errorf("functions is not given: the folder with the functions' builds")
	case p.Domain != "" && p.Certificate == "":
		return p, fmt.Errorf("domain %s needs certificateArn, a certificate for it in the same region", p.Domain)
	case p.Domain == "" && (p.Certificate != "" || p.HostedZone != ""):
		return p, fmt.Errorf("certificateArn and hostedZoneId need domain")
	case p.RunnerImage != "" && !imagePattern.MatchString(p.RunnerImage):
		return p, fmt.Errorf("runnerImage %q is not an image by digest", p.RunnerImage)
	case p.RunnerDigest != "" && !digestPattern.MatchString(p.RunnerDigest):
		return p, fmt.Errorf("runnerDigest %q is no sha256 digest", p.RunnerDigest)
	case p.RunnerDigest != "" && (p.RunnerImage != "" || p.TemplateURL != ""):
		return p, fmt.Errorf("runnerDigest says that image and template are in this stack; runnerImage and stackTemplateUrl say that they are elsewhere")
	case (p.RunnerDigest == "") != (p.Template == ""):
		return p, fmt.Errorf("runnerDigest and the template's digest go together")
	case !slices.Contains(retentions, p.LogDays):
		return p, fmt.Errorf("logRetentionDays is %d; CloudWatch Logs knows %v", p.LogDays, retentions)
	case p.MemoryMB < 128 || p.MemoryMB > 10240:
		return p, fmt.Errorf("functionMemoryMb is %d; Lambda gives 128 to 10240", p.MemoryMB)
	}
	for _, a := range p.RunnerReader {
		if !accountPattern.MatchString(a) {
			return p, fmt.Errorf("runnerReaders: %q is no account id", a)
		}
	}
	if err := p.Build.check(p.RunnerDigest); err != nil {
		return p, err
	}
	var err error
	p.Functions, err = filepath.Abs(p.Functions)
	return p, err
}
