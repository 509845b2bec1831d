package control_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func TestVersionsOfAnAppAreListedNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t, enginetest.Memory())
		var want []fairlead.VersionID
		for n := range 3 {
			v := p.publish(strings.Replace(shop, "name: shop\n", fmt.Sprintf("name: shop\ndescription: number %d\n", n), 1))
			want = append([]fairlead.VersionID{v.ID}, want...)
			time.Sleep(time.Second)
		}
		// If the first version is published again, it keeps its position in the list.
		p.publish(strings.Replace(shop, "name: shop\n", "name: shop\ndescription: number 0\n", 1))
		p.publish(strings.Replace(shop, "name: shop\n", "name: other\n", 1))
		var got []fairlead.VersionID
		after := ""
		for {
			page, next, err := p.Versions(p.ctx, org, "shop", fairlead.PageQuery{After: after, Limit: 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range page {
				if v.Spec == nil || v.App != "shop" {
					t.Errorf("version %s is of app %q", v.ID, v.App)
				}
				got = append(got, v.ID)
			}
			if after = next; next == "" {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if _, _, err := p.Versions(p.ctx, "other", "shop", fairlead.PageQuery{}); fairlead.CodeOf(err) != "app-not-found" {
			t.Errorf("another org gets %v", err)
		}
	})
}
