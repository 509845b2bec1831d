package enginetest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/pkg/store/engine"
)

func limitTests() []test {
	return []test{
		{"the engine stores the largest item", largestItem},
		{"the largest commit is atomic", largestCommit},
		{"a page of large items is complete", largePages},
		{"the largest page of an index is complete", fullIndexPage},
		{"a commit over a limit is refused and writes nothing", overLimits},
		{"a key that is not text is refused", keysThatAreNoText},
	}
}

func largestItem(f *fixture) {
	k := engine.Key{Partition: long(f.part("p"), engine.MaxPartition), Sort: long("s", engine.MaxSort)}
	list := engine.Key{Partition: long(f.part("l"), engine.MaxPartition), Sort: long("l", engine.MaxSort)}
	due := engine.Key{Partition: long(f.part("d"), engine.MaxPartition), Sort: long("d", engine.MaxSort)}
	it := engine.Item{
		Key: k, Body: bytes.Repeat([]byte{0xfe}, engine.MaxBody), List: &list, Due: &due,
		Expires: engine.ExpiryTime(7e9),
	}
	it.Token = strings.Repeat("t", 36)
	for v := range int64(2) { // the second commit replaces an item of the same size
		it.Token = fmt.Sprintf("%.24s%012d", token()+token(), v)
		if err := f.e.Commit(f.Context(), it.Token, engine.Write{Item: it, If: engine.Version(v)}); err != nil {
			f.Fatal(err)
		}
		it.Version = v + 1
		f.want(it)
	}
	err := f.e.Commit(f.Context(), token(), put(k, "", engine.Absent()), put(f.key("p", "2"), "", engine.Absent()))
	f.wantConflict(err, k, engine.Absent(), &it)
	f.wantSorts(engine.Query{Partition: k.Partition}, 0, k.Sort)
	f.wantSorts(engine.Query{Index: engine.List, Partition: list.Partition}, 0, k.Sort)
}

func long(s string, n int) string { return s + strings.Repeat("x", n-len(s)) }

func largestCommit(f *fixture) {
	// The keys have the greatest length, because the size of a commit includes its keys.
	key := func(place string, i int) engine.Key {
		return engine.Key{Partition: long(f.part(place), engine.MaxPartition), Sort: long(fmt.Sprintf("%03d", i), engine.MaxSort)}
	}
	const keys = 3 * (engine.MaxPartition + engine.MaxSort)
	body := strings.Repeat("b", engine.MaxCommitSum/engine.MaxCommit-keys)
	var writes []engine.Write
	for i := range engine.MaxCommit {
		list, due := key("l", i), key("d", i)
		writes = append(writes, at(put(key("p", i), body, engine.Absent()), &list, &due))
	}
	tok := f.commit(writes...)
	items := f.all(engine.Query{Partition: key("p", 0).Partition}, 0)
	if len(items) != engine.MaxCommit {
		f.Fatalf("%d items are stored, want %d", len(items), engine.MaxCommit)
	}
	for _, it := range items {
		if it.Version != 1 || it.Token != tok || string(it.Body) != body {
			f.Fatalf("item %q differs from the write", it.Key)
		}
	}
	// The engine finds the only conflict among a hundred writes.
	writes[98].If = engine.Version(2)
	for i := range writes {
		if i != 98 {
			writes[i].If = engine.Version(1)
		}
		writes[i].Item.Body = nil
	}
	f.wantConflict(f.e.Commit(f.Context(), token(), writes...), writes[98].Item.Key, engine.Version(2), &items[98])
	f.want(items[0])
	f.want(items[99])
}

func largePages(f *fixture) {
	body := strings.Repeat("b", 300_000) // one DynamoDB response cannot hold 15 of them
	var want []string
	for i := range 15 {
		s := fmt.Sprintf("%02d", i)
		f.commit(put(f.key("p", s), body, engine.Absent()))
		want = append(want, s)
	}
	f.wantSorts(engine.Query{Partition: f.part("p")}, 0, want...)
	f.wantSorts(engine.Query{Partition: f.part("p")}, 14, want...)
}

func fullIndexPage(f *fixture) {
	var want []string
	body := strings.Repeat("b", 40_000) // one DynamoDB batch of reads cannot hold them all
	for i := 0; i < engine.MaxPage+20; i += 20 {
		var writes []engine.Write
		for j := i; j < i+20; j++ {
			s := fmt.Sprintf("%04d", j)
			place := f.key("l", s)
			writes = append(writes, at(put(f.key("p"+fmt.Sprint(j%4), s), body, engine.Absent()), &place, nil))
			want = append(want, s)
		}
		f.commit(writes...)
	}
	f.wantSorts(engine.Query{Index: engine.List, Partition: f.part("l")}, 0, want...)
}

func overLimits(f *fixture) {
	k := f.key("p", "k")
	big := put(k, strings.Repeat("b", engine.MaxBody+1), engine.Any())
	var many, heavy []engine.Write
	for i := range engine.MaxCommit + 1 {
		many = append(many, put(f.key("p", fmt.Sprint(i)), "", engine.Any()))
	}
	for i := range 11 {
		heavy = append(heavy, put(f.key("p", fmt.Sprint(i)), strings.Repeat("b", engine.MaxBody), engine.Any()))
	}
	var wide []engine.Write // the sum of the bodies is allowed, but with the keys it is too large
	for i := range engine.MaxCommit {
		w := put(f.key("p", fmt.Sprint(i)), strings.Repeat("b", engine.MaxCommitSum/engine.MaxCommit-2000), engine.Any())
		place := engine.Key{Partition: long(f.part("l"), engine.MaxPartition), Sort: "s"}
		wide = append(wide, at(w, &place, nil))
	}
	noSort := engine.Key{Partition: f.part("l")}
	f.refuses(map[string]badCommit{
		"no writes":           {token(), nil},
		"no token":            {"", []engine.Write{put(k, "", engine.Any())}},
		"a long token":        {strings.Repeat("t", 37), []engine.Write{put(k, "", engine.Any())}},
		"a large body":        {token(), []engine.Write{big}},
		"too many writes":     {token(), many},
		"too many bytes":      {token(), heavy},
		"too many key bytes":  {token(), wide},
		"the same item twice": {token(), []engine.Write{put(k, "", engine.Any()), check(k, engine.Any())}},
		"an empty sort key":   {token(), []engine.Write{put(engine.Key{Partition: f.part("p")}, "", engine.Any())}},
		"an empty partition":  {token(), []engine.Write{put(engine.Key{Sort: "x"}, "", engine.Any())}},
		"a long sort key":     {token(), []engine.Write{put(f.key("p", strings.Repeat("x", engine.MaxSort+1)), "", engine.Any())}},
		"a bad index key":     {token(), []engine.Write{at(put(k, "", engine.Any()), &noSort, nil)}},
		"an unknown op":       {token(), []engine.Write{{Op: 9, Item: engine.Item{Key: k}, If: engine.Any()}}},
	})
}

func keysThatAreNoText(f *fixture) {
	bad := make(map[string]badCommit)
	for what, s := range notText() {
		good := put(f.key("p", "good"), "", engine.Any())
		place, entry := f.key("l", s), f.key(s, "1")
		for part, w := range map[string]engine.Write{
			"sort key":          put(f.key("p", s), "", engine.Any()),
			"partition":         put(f.key(s, "k"), "", engine.Any()),
			"key to delete":     del(f.key("p", s), engine.Any()),
			"key to check":      check(f.key("p", s), engine.Absent()),
			"place in the list": at(put(f.key("p", "k"), "", engine.Any()), &place, nil),
			"place among due":   at(put(f.key("p", "k"), "", engine.Any()), nil, &place),
			"partition of list": at(put(f.key("p", "k"), "", engine.Any()), &entry, nil),
			"partition of due":  at(put(f.key("p", "k"), "", engine.Any()), nil, &entry),
		} {
			bad[part+" "+what] = badCommit{token(), []engine.Write{w}}
			bad[part+" "+what+", beside a good one"] = badCommit{token(), []engine.Write{good, w}}
		}
		bad["token "+what] = badCommit{s, []engine.Write{good}}
	}
	f.refuses(bad)
}

type badCommit struct {
	token  string
	writes []engine.Write
}

// refuses asserts two facts: the engine refuses each commit with the error of
// engine.CheckCommit, and partition p stays empty.
func (f *fixture) refuses(commits map[string]badCommit) {
	f.Helper()
	for name, c := range commits {
		want := engine.CheckCommit(c.token, c.writes)
		if want == nil {
			f.Errorf("%s: engine.CheckCommit allows it", name)
			continue
		}
		if err := f.e.Commit(f.Context(), c.token, c.writes...); err == nil || err.Error() != want.Error() {
			f.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	if items := f.all(engine.Query{Partition: f.part("p")}, 0); len(items) > 0 {
		f.Errorf("a refused commit wrote %d items", len(items))
	}
}

func concurrencyTests() []test {
	return []test{
		{"concurrent increments lose nothing", increments},
		{"only one of many creations of an item succeeds", oneWinner},
		{"transfers between items keep the sum", transfers},
	}
}

// parallel runs n workers. It fails the test if a worker returns an error.
func (f *fixture) parallel(n int, work func(worker int) error) {
	f.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = work(i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		f.Fatal(err)
	}
}

// retry repeats a compare-and-set until the commit has no conflict. If many commits write
// the same item, an engine may return an error other than a conflict. After such an error
// retry repeats the commit with the same token.
func (f *fixture) retry(build func() ([]engine.Write, error)) error {
	for range 10_000 {
		writes, err := build()
		if err != nil {
			return err
		}
		tok := token()
		err = f.e.Commit(f.Context(), tok, writes...)
		for range 20 {
			if _, conflict := errors.AsType[*engine.ConflictError](err); err == nil || conflict {
				break
			}
			err = f.e.Commit(f.Context(), tok, writes...)
		}
		if _, conflict := errors.AsType[*engine.ConflictError](err); !conflict {
			return err
		}
	}
	return errors.New("10,000 conflicts in a row")
}

func increments(f *fixture) {
	const workers, each = 8, 15
	one, both := f.key("p", "one"), f.key("q", "both")
	f.commit(put(one, "0", engine.Absent()), put(both, "0", engine.Absent()))
	next := func(k engine.Key) (engine.Write, error) {
		it, err := f.e.Get(f.Context(), k)
		if err != nil {
			return engine.Write{}, err
		}
		n, err := strconv.Atoi(string(it.Body))
		return put(k, strconv.Itoa(n+1), engine.Version(it.Version)), err
	}
	f.parallel(workers, func(w int) error {
		for range each {
			err := f.retry(func() ([]engine.Write, error) {
				a, err := next(one)
				if w%2 == 0 || err != nil {
					return []engine.Write{a}, err
				}
				b, err := next(both)
				return []engine.Write{a, b}, err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if got := f.get(one); string(got.Body) != strconv.Itoa(workers*each) || got.Version != workers*each+1 {
		f.Errorf("after %d increments the item is %s, version %d", workers*each, got.Body, got.Version)
	}
	if got := f.get(both); string(got.Body) != strconv.Itoa(workers/2*each) {
		f.Errorf("after %d increments the item is %s", workers/2*each, got.Body)
	}
}

func oneWinner(f *fixture) {
	const workers = 12
	for round := range 5 {
		k := f.key("p", fmt.Sprint(round))
		var mu sync.Mutex
		won := 0
		f.parallel(workers, func(w int) error {
			tok := token()
			writes := []engine.Write{put(k, fmt.Sprint(w), engine.Absent())}
			if w%2 == 1 {
				writes = append(writes, put(f.key("p", fmt.Sprint(round, "by", w)), "", engine.Absent()))
			}
			err := f.e.Commit(f.Context(), tok, writes...)
			for range 20 {
				if _, conflict := errors.AsType[*engine.ConflictError](err); err == nil || conflict {
					break
				}
				err = f.e.Commit(f.Context(), tok, writes...)
			}
			if _, conflict := errors.AsType[*engine.ConflictError](err); conflict {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			won++
			return err
		})
		if won != 1 {
			f.Fatalf("%d of %d commits created the item, want 1", won, workers)
		}
	}
}

func transfers(f *fixture) {
	const accounts, workers, each, start = 4, 6, 10, 100
	key := func(i int) engine.Key { return f.key("p", fmt.Sprint(i)) }
	for i := range accounts {
		f.commit(put(key(i), strconv.Itoa(start), engine.Absent()))
	}
	f.parallel(workers, func(w int) error {
		for n := range each {
			from, to := (w+n)%accounts, (w+n*3+1)%accounts
			if from == to {
				continue
			}
			err := f.retry(func() ([]engine.Write, error) {
				a, err := f.e.Get(f.Context(), key(from))
				if err != nil {
					return nil, err
				}
				b, err := f.e.Get(f.Context(), key(to))
				if err != nil {
					return nil, err
				}
				x, _ := strconv.Atoi(string(a.Body)) // the test wrote this number itself
				y, _ := strconv.Atoi(string(b.Body))
				return []engine.Write{
					put(a.Key, strconv.Itoa(x-1), engine.Version(a.Version)),
					put(b.Key, strconv.Itoa(y+1), engine.Version(b.Version)),
				}, nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	sum := 0
	for i := range accounts {
		n, err := strconv.Atoi(string(f.get(key(i)).Body))
		if err != nil {
			f.Fatal(err)
		}
		sum += n
	}
	if sum != accounts*start {
		f.Errorf("the sum is %d, want %d", sum, accounts*start)
	}
}
