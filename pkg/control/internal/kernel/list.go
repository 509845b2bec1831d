package kernel

import "github.com/fairlead/fairlead/pkg/store"

// List renders a page of records. It returns the start of the next page, "" at the end.
// err is the error of reading the page.
func List[T, V any](p store.Page[T], err error, render func(T) V) (items []V, next string, _ error) {
	return TryList(p, err, func(r T) (V, error) { return render(r), nil })
}

// TryList is List with a render function that can fail.
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
