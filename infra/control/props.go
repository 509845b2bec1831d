package control

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Props are the settings of a control plane. The zero value of a field means its
// default, if it has one.
type Props struct {
	Stage     string // part of every name that CloudFormation does not choose; required
	Region    string // "": the region of the deployment's credentials
	Account   string // "": the account of the deployment's credentials
	Functions string // a folder that has one folder for each function, with the file bootstrap in it; required

	// Domain is the host name of the API; "" means API Gateway's own host name. A
	// Domain needs a Certificate of the same region. HostedZone is an optional Route
	// 53 zone: if it is set, the stack makes the DNS records in it.
	Domain      string
	Certificate string // ARN
	HostedZone  string // id
	// If the vendor publishes the image and the template elsewhere, these two replace the
	// parameters ParameterDigest and ParameterTemplate, which name files in the stack's
	// registry and bucket.
	RunnerImage string // image of new customers' stacks, by digest
	TemplateURL string // of the published runner stack
	MemoryMB    int    // of each function; default 256
	LogDays     int    // days that CloudWatch Logs keeps logs of jobs and of functions; default 30
	ArchiveDays int    // days that S3 keeps logs of jobs; default 365
	RateLimit   int    // requests a second to a route without its own limit; default 500
	BurstLimit  int    // concurrent requests to a route without its own limit; default 1,000
	LogBurst    int    // MiB of log that one runner may write at once after a pause; default 1,024
	LogPerHour  int    // MiB of log that one runner may write in an hour; default 256
	OrgRate     int    // requests a second of the people and programs of an org; default 200
	Quotas      string // limits of each org, such as "installs=100,runners=50"; "": the defaults
	LostRunners int    // runners that must turn lost within five minutes for an alarm; default 1
	StuckJobs   int    // jobs that must become stuck within five minutes for an alarm; default 1
	// Deletable disables the tables' deletion protection. Set it for a first creation,
	// because its rollback cannot remove protected tables. Unset it when the stack
	// exists.
	Deletable bool
	Traces    string // URL of the OpenTelemetry collector of the functions' traces; "": no traces
	AllAtOnce bool   // a new version of a function gets all invocations at once, without a canary
	Build     Build
	Spare     bool    // the app has the spare stack and not the control plane's
	Direct    Network // of the service of direct launch, which ParameterDirect switches on
}

// retentions are the days of retention that CloudWatch Logs supports.
var retentions = []int{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}

var (
	stagePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,15}$`)
	imagePattern = regexp.MustCompile(`^[^@\s]+@sha256:[0-9a-f]{64}$`)
)

// FromContext reads Props from the context of a CDK app, in which every value is a
// string. The error names the invalid key.
func FromContext(get func(key string) string) (Props, error) {
	p := Props{
		Stage: get("stage"), Region: get("region"), Account: get("account"), Functions: get("functions"),
		Domain: get("domain"), Certificate: get("certificateArn"), HostedZone: get("hostedZoneId"),
		Traces: get("otlpEndpoint"), Quotas: get("quotas"), RunnerImage: get("runnerImage"), TemplateURL: get("stackTemplateUrl"),
		Build:  Build{Size: get("buildRunnerSize"), Image: get("buildRunnerImage"), Secrets: fields(get("buildRunnerSecrets")), Images: Images{Size: get("imageBuildSize"), Architecture: get("imageBuildArchitecture"), BuildKit: get("imageBuildKit")}, Network: Network{VPC: get("buildRunnerVpc"), Subnets: fields(get("buildRunnerSubnets"))}},
		Direct: Network{VPC: get("directLaunchVpc"), Subnets: fields(get("directLaunchSubnets"))},
	}
	protected, canary := true, true
	for key, field := range map[string]*bool{"buildRunnerPublicIp": &p.Build.PublicIP, "directLaunchPublicIp": &p.Direct.PublicIP, "deletionProtection": &protected, "canary": &canary, "spare": &p.Spare} {
		switch value := get(key); value {
		case "":
		case "true", "false":
			*field = value == "true"
		default:
			return Props{}, fmt.Errorf("%s is %q; use true or false", key, value)
		}
	}
	p.Deletable, p.AllAtOnce = !protected, !canary
	for key, field := range map[string]*int{
		"functionMemoryMb": &p.MemoryMB, "imageBuilds": &p.Build.Images.Limit, "logRetentionDays": &p.LogDays, "archiveRetentionDays": &p.ArchiveDays,
		"rateLimit": &p.RateLimit, "orgRequestsPerSecond": &p.OrgRate, "burstLimit": &p.BurstLimit, "logBurstMib": &p.LogBurst, "logMibPerHour": &p.LogPerHour, "alarmLostRunners": &p.LostRunners, "alarmStuckJobs": &p.StuckJobs,
	} {
		text := get(key)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return Props{}, fmt.Errorf("%s is %q; use a positive number", key, text)
		}
		*field = n
	}
	return p, nil
}

func fields(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// withDefaults validates the props and sets the defaults.
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
	set(&p.OrgRate, 200)
	set(&p.LogBurst, 1024)
	set(&p.LogPerHour, 256)
	set(&p.LostRunners, 1)
	set(&p.StuckJobs, 1)
	switch {
	case !stagePattern.MatchString(p.Stage):
		return p, fmt.Errorf("stage %q: use up to 16 lower-case letters, digits and hyphens, beginning with a letter", p.Stage)
	case strings.HasPrefix(p.Stage, "direct"):
		return p, fmt.Errorf("stage %q: the stack's own roles would have names like those of customers' roles for direct launch; use another name", p.Stage)
	case strings.HasSuffix(p.Stage, spareSuffix):
		return p, fmt.Errorf("stage %q: a name that ends with %s is that of another stage's spare stack; use another name", p.Stage, spareSuffix)
	case p.Traces != "" && !strings.HasPrefix(p.Traces, "https://"):
		return p, fmt.Errorf("otlpEndpoint %q: give the URL of a collector, with https://", p.Traces)
	case p.Functions == "":
		return p, fmt.Errorf("functions is missing: give the folder with the functions' builds")
	case p.Domain != "" && p.Certificate == "":
		return p, fmt.Errorf("domain %s needs certificateArn, a certificate for it in the same region", p.Domain)
	case p.Domain == "" && (p.Certificate != "" || p.HostedZone != ""):
		return p, fmt.Errorf("certificateArn and hostedZoneId need domain")
	case p.RunnerImage != "" && !imagePattern.MatchString(p.RunnerImage):
		return p, fmt.Errorf("runnerImage %q is not an image by digest", p.RunnerImage)
	case !slices.Contains(retentions, p.LogDays):
		return p, fmt.Errorf("logRetentionDays is %d; CloudWatch Logs supports %v", p.LogDays, retentions)
	case p.MemoryMB < 128 || p.MemoryMB > 10240:
		return p, fmt.Errorf("functionMemoryMb is %d; Lambda supports 128 to 10240", p.MemoryMB)
	}
	if _, err := fairlead.ParseQuotas(p.Quotas); err != nil {
		return p, fmt.Errorf("quotas: %w", err)
	}
	err := errors.Join(p.Build.check(), p.Direct.check("directLaunch"))
	if err != nil {
		return p, err
	}
	p.Functions, err = filepath.Abs(p.Functions)
	return p, err
}
