package kernel

import "github.com/fairlead/fairlead/pkg/store"

// List renders a page of records, and returns where the next page begins; "": there
// is none. err is that of reading the page.
func List[T, V any](p store.Page[T], err error, render func(T) V) (items []V, next string, _ error) {
	return TryList(p, err, func(r T) (V, error) { return render(r), nil })
}

// TryList is List where a record may be one that cannot be rendered.
func TryList[T, V any](p store.Page[T], err error, render func(T) (V, error)) (items []V, next string, _ error) {
	if err != nil {
		return nil, "", err
	}
	items = make([]V, len(p.Items))
	for i, r := range p.Items {
		if items[i], err = render(r.V); err != nil {
			return nil, "", err
		}
	}
	return items, p.Next, nil
}
