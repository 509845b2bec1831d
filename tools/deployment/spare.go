package deployment

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/backup"
)

// NoSpareRegion is the value of Options.SpareRegion that ends the copies in another Region.
const NoSpareRegion = "none"

var regionPattern = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9]$`)

// spareSuffix ends the name of the spare stack. infra/control has the same value.
const spareSuffix = "-spare"

// spare is the spare stack: what it is now, and what the control plane's stack shall know of it.
type spare struct {
	prepared bool // "cdk bootstrap" has prepared the account in the spare Region
	stack    described
	parts    string // wanted: Region, vault and buckets that get copies, as the parameter SpareStack; "": no copies
}

func (d *Deployment) spareStack() string { return d.stack() + spareSuffix }

// spareAssembly is the folder of the synthesized spare stack.
func (d *Deployment) spareAssembly() string { return filepath.Join(d.Root, "bin", "infra-spare") }

// wantsSpare reports whether this run deploys the spare stack. A run that does not name the Region keeps the copies
// and does not touch the spare stack, so that a deployment does not depend on the health of another Region.
func (d *Deployment) wantsSpare() bool { return d.SpareRegion != "" && d.SpareRegion != NoSpareRegion }

func (d *Deployment) checkSpare() error {
	switch {
	case !d.wantsSpare():
		return nil
	case !regionPattern.MatchString(d.SpareRegion):
		return fmt.Errorf("spare region %q is not an AWS region, such as eu-west-1; use none to end the copies", d.SpareRegion)
	case d.SpareRegion == d.Config.Region:
		return fmt.Errorf("the spare region %s is the region of the control plane: use another one, which is not lost with it", d.SpareRegion)
	}
	return nil
}

// in returns the deployment in another Region.
func (d *Deployment) in(region string) *Deployment {
	other := *d
	other.Config = d.Config.Copy()
	other.Config.Region = region
	return &other
}

// inspectSpare reads the state of the account in the spare Region.
func (d *Deployment) inspectSpare(ctx context.Context, current string) (s spare, err error) {
	if d.SpareRegion != NoSpareRegion {
		s.parts = set(current)
	}
	if !d.wantsSpare() {
		return s, nil
	}
	there := d.in(d.SpareRegion)
	kit, err := there.describe(ctx, toolkit)
	if err != nil {
		return s, fmt.Errorf("in the spare region %s: %w", d.SpareRegion, err)
	}
	s.prepared = created(kit.status) && bootstrapped(kit.outputs["BootstrapVersion"])
	if s.stack, err = there.describe(ctx, d.spareStack()); err != nil {
		return s, fmt.Errorf("in the spare region %s: %w", d.SpareRegion, err)
	}
	return s, nil
}

// backedUp is AWS Backup's name of the type of resource that is copied.
const backedUp = "DynamoDB"

// checkBackups reads the settings of AWS Backup in both Regions. An account decides in each Region whether AWS Backup serves a
// type of resource, and whether it manages the backups of it: only managed ones can be copied to another Region. Without
// both, a plan is accepted, and each of its jobs fails. checkBackups returns an error that names each Region with a setting
// that is off. It changes none, because a setting is for all tables of the account. A caller who may not ask gets a warning.
func (d *Deployment) checkBackups(ctx context.Context, caller string) error {
	var off, remedies []string
	for _, at := range []*Deployment{d, d.in(d.SpareRegion)} {
		region := at.Config.Region
		set, err := backup.NewFromConfig(at.Config).DescribeRegionSettings(ctx, &backup.DescribeRegionSettingsInput{})
		if err != nil {
			d.say("Warning: AWS Backup does not answer in region %s whether it copies tables of %s: %v\n  If it does not, no table is copied to the spare region, and the alarm FailedCopies reports it. To check first, permit %s to use backup:DescribeRegionSettings.", region, backedUp, reasonOf(err), caller)
			continue
		}
		var missing []string
		if !set.ResourceTypeOptInPreference[backedUp] {
			missing = append(missing, "it is not opted in")
		}
		if !set.ResourceTypeManagementPreference[backedUp] {
			missing = append(missing, "its advanced features are off")
		}
		if len(missing) > 0 {
			off = append(off, "in "+region+" "+strings.Join(missing, ", and "))
			remedies = append(remedies, "  aws backup update-region-settings --region "+region+" --resource-type-opt-in-preference "+backedUp+"=true --resource-type-management-preference "+backedUp+"=true")
		}
	}
	if len(off) == 0 {
		return nil
	}
	return fmt.Errorf("AWS Backup of this account would not copy the table to the spare region, for %s: %s\nNothing was changed. The settings are for all tables of the account. To change them, then run the command again:\n%s",
		backedUp, strings.Join(off, "; "), strings.Join(remedies, "\n"))
}

// announceSpare prints the steps in the spare Region.
func (d *Deployment) announceSpare(s spare, current string, step func(format string, args ...any)) {
	switch {
	case d.SpareRegion == NoSpareRegion && set(current) != "":
		step("end the copies in another region; the stack %s there stays with its copies and keys", d.spareStack())
	case d.wantsSpare():
		if !s.prepared {
			step("prepare the account for the CDK in region %s", d.SpareRegion)
		}
		if rolledBack(s.stack.status) {
			step("delete the rest of the stack %s in region %s, whose first creation was rolled back: %s", d.spareStack(), d.SpareRegion, s.stack.status)
		}
		verb := "create"
		if created(s.stack.status) {
			verb = "update"
		}
		step("%s the stack %s in region %s: a vault, replicas of the five keys and two buckets", verb, d.spareStack(), d.SpareRegion)
		step("copy the table there every hour, and blobs and archived logs when they are written")
	case s.parts != "":
		region, _, _ := strings.Cut(s.parts, "/")
		step("go on with the copies in region %s", region)
	default:
		step("copy nothing to another region: set SPARE_REGION= to keep the records if region %s is lost", d.Config.Region)
	}
}

// deploySpare deploys the spare stack and returns its parts, for the parameter SpareStack. The control plane's stack must exist,
// because the replicas are of its keys.
func (d *Deployment) deploySpare(ctx context.Context, s state) (string, error) {
	parameters := []struct{ name, output, value string }{{"PrimaryRegion", "", d.Config.Region}, {"PrimaryKeys", "KeyIds", ""}, {"PrimaryBlobs", "BlobsBucket", ""}, {"PrimaryLogs", "LogArchiveBucket", ""}}
	var values []string
	for _, p := range parameters {
		value := cmp.Or(p.value, s.outputs[p.output])
		if value == "" {
			return "", fmt.Errorf("the stack %s has no output %s, which the spare stack needs: look at its events in CloudFormation, then run the command again", d.stack(), p.output)
		}
		values = append(values, "--parameters", d.spareStack()+":"+p.name+"="+value)
	}
	there, name := d.in(d.SpareRegion), d.spareStack()
	d.say("Deploying the stack %s in region %s", name, d.SpareRegion)
	app := []string{"--app", d.spareAssembly()}
	if _, err := there.cdk(ctx, "synth", name, "--quiet", "--output", d.spareAssembly(), "-c", "stage="+d.Stage, "-c", "spare=true"); err != nil {
		return "", err
	}
	if !s.spare.prepared {
		if _, err := there.cdk(ctx, append([]string{"bootstrap", "aws://" + s.account + "/" + d.SpareRegion}, app...)...); err != nil {
			return "", err
		}
	}
	if rolledBack(s.spare.stack.status) {
		if err := there.unprotect(ctx, name, s.spare.stack.status); err != nil {
			return "", err
		}
	}
	if _, err := there.cdk(ctx, slices.Concat([]string{"deploy", name, "--require-approval", d.approval()}, values, app)...); err != nil {
		return "", err
	}
	deployed, err := there.describe(ctx, name)
	if err != nil {
		return "", err
	}
	parts := []string{d.SpareRegion}
	for _, output := range []string{"VaultName", "BlobsBucket", "LogArchiveBucket"} {
		if deployed.outputs[output] == "" {
			return "", fmt.Errorf("the stack %s in region %s has no output %s: look at its events in CloudFormation, then run the command again", name, d.SpareRegion, output)
		}
		parts = append(parts, deployed.outputs[output])
	}
	return strings.Join(parts, "/"), nil
}

// existingKeys returns the wanted value of the parameter ExistingKeys. A stack's keys are decided at its creation and never
// change, because with other keys it cannot open what it sealed. A new stack in a Region with a spare stack of the same stage
// uses the replicas there: that is what they are for. An operator who has lost a Region cannot forget them.
func (d *Deployment) existingKeys(ctx context.Context, current described) (string, error) {
	if created(current.status) {
		return set(current.parameters["ExistingKeys"]), nil
	}
	replicas, err := d.describe(ctx, d.spareStack())
	if err != nil || !created(replicas.status) {
		return "", err
	}
	keys := replicas.parameters["PrimaryKeys"]
	if keys == "" {
		return "", fmt.Errorf("the stack %s of this region names no keys in its parameter PrimaryKeys, so a new control plane could not use them", d.spareStack())
	}
	return keys, nil
}
