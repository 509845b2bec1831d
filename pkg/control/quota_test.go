package control_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// quotaCase makes and deletes the n-th item of a quota in an org.
type quotaCase struct {
	make, remove func(p *plane, org fairlead.OrgID, n int) error
}

func quotaCases() map[fairlead.Quota]quotaCase {
	return map[fairlead.Quota]quotaCase{
		fairlead.QuotaApps: {make: func(p *plane, org fairlead.OrgID, n int) error { // an app cannot be deleted
			app := fmt.Sprintf("app-%d", n)
			config, problems := appspec.Parse("app.yaml", []byte("fairlead: v1\nname: "+app+"\ncomponents:\n  web: {type: terraform, source: ./web}\n"))
			if problems != nil {
				return problems
			}
			canonical, err := config.Canonical()
			if err != nil {
				return err
			}
			_, err = p.PublishVersion(p.ctx, org, app, canonical, map[string]string{"web": "sha256:" + strings.Repeat("0", 64)})
			return err
		}},
		fairlead.QuotaInstalls: {
			make: func(p *plane, org fairlead.OrgID, n int) error {
				_, err := p.CreateInstall(p.ctx, org, control.NewInstall{Name: fmt.Sprintf("install-%d", n), App: "app-9"}, fmt.Sprint(org, n))
				return err
			},
			remove: func(p *plane, org fairlead.OrgID, n int) error {
				return p.ForgetInstall(p.ctx, org, fmt.Sprintf("install-%d", n), false)
			}},
		fairlead.QuotaRunners: {
			make: func(p *plane, org fairlead.OrgID, n int) error {
				_, err := p.CreateRunner(p.ctx, org, control.NewRunner{Name: fmt.Sprintf("runner-%d", n)}, fmt.Sprint(org, n))
				return err
			},
			remove: func(p *plane, org fairlead.OrgID, n int) error {
				return p.DeleteRunner(p.ctx, control.User{Org: org}, fmt.Sprintf("runner-%d", n))
			}},
		fairlead.QuotaServiceAccounts: {
			make: func(p *plane, org fairlead.OrgID, n int) error {
				rule := control.TokenRule{Issuer: "https://issuer.example", Audience: "x", Claims: map[string]string{"sub": "x"}}
				return errOf(p.CreateServiceAccount(p.ctx, access.Principal{Org: org, Bindings: access.OwnerOf()}, control.NewServiceAccount{Name: fmt.Sprintf("account-%d", n), AccountSettings: control.AccountSettings{Rule: rule}}, fmt.Sprint(org, n)))
			},
			remove: func(p *plane, org fairlead.OrgID, n int) error {
				return p.DeleteServiceAccount(p.ctx, access.Principal{Org: org, Bindings: access.OwnerOf()}, fmt.Sprintf("account-%d", n))
			}},
		fairlead.QuotaGroups: {
			make: func(p *plane, org fairlead.OrgID, n int) error {
				_, err := p.CreateGroup(p.ctx, org, fmt.Sprintf("group-%d", n), "", fmt.Sprint(org, n))
				return err
			},
			remove: func(p *plane, org fairlead.OrgID, n int) error {
				return p.DeleteGroup(p.ctx, org, fmt.Sprintf("group-%d", n))
			}},
		fairlead.QuotaRules: {
			make: func(p *plane, org fairlead.OrgID, n int) error {
				_, err := p.CreateRunnerRule(p.ctx, org, control.NewRunnerRule{Labels: map[string]string{"n": fmt.Sprint(n)}, Runner: "common"}, fmt.Sprint(org, n))
				return err
			},
			remove: func(p *plane, org fairlead.OrgID, n int) error {
				rules, _, err := p.RunnerRules(p.ctx, org, fairlead.PageQuery{})
				for _, r := range rules {
					if strings.Contains(r.Match.String(), fmt.Sprintf("n=%d", n)) {
						return p.DeleteRunnerRule(p.ctx, org, string(r.ID))
					}
				}
				return errors.Join(err, errors.New("no such rule"))
			}},
	}
}

// One org cannot fill the table of the others. A deleted item makes room for another one,
// and concurrent requests cannot exceed the quota together.
func TestOrgCannotExceedItsQuota(t *testing.T) {
	const limit, other = 3, fairlead.OrgID("org_other")
	for _, quota := range fairlead.QuotaNames() {
		t.Run(string(quota), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlane(t, enginetest.Memory())
				of := quotaCases()[quota]
				for _, o := range []fairlead.OrgID{org, other} { // what the items need, before there is a quota
					p.must("publish", func() error { return quotaCases()[fairlead.QuotaApps].make(p, o, 9) })
					p.must("make a runner", func() error {
						_, err := p.CreateRunner(p.ctx, o, control.NewRunner{Name: "common"}, "common "+string(o))
						return err
					})
				}
				count := func() int {
					n, err := p.Store.Count(p.ctx, store.Counted{Org: org, Quota: quota})
					if err != nil {
						t.Fatal(err)
					}
					return n.V.Number
				}
				before := count()
				p.Quotas = fairlead.Quotas{quota: before + limit}
				var made, refused atomic.Int64
				var all sync.WaitGroup
				for n := range limit + 3 {
					all.Go(func() {
						switch err := of.make(p, org, n); {
						case err == nil:
							made.Add(1)
						case fairlead.CodeOf(err) == fairlead.CodeQuotaReached:
							refused.Add(1)
						default:
							t.Error(err)
						}
					})
				}
				all.Wait()
				if made.Load() != limit || refused.Load() != 3 || count() != before+limit {
					t.Fatalf("%d were made, %d refused, %d counted; the quota has room for %d", made.Load(), refused.Load(), count()-before, limit)
				}
				p.must("make one in another org", func() error { return of.make(p, other, 0) })
				if of.remove == nil {
					return
				}
				for n := range limit + 3 { // one of them exists
					if of.remove(p, org, n) == nil {
						break
					}
				}
				p.must("make one in the place of the deleted one", func() error { return of.make(p, org, 100) })
				expectCode(t, "one more", of.make(p, org, 101), string(fairlead.CodeQuotaReached))
			})
		})
	}
}
