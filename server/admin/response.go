package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
)

// handler answers a request. It may return an error before it writes: the error is the answer then.
type handler func(w http.ResponseWriter, r *http.Request) error

func (h handler) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	if err := h(response, r); err != nil {
		code := http.StatusInternalServerError
		if failed, ok := errors.AsType[*failure](err); ok {
			code = failed.code
		}
		http.Error(response, err.Error(), code)
	}
}

// failure is an error with its HTTP status.
type failure struct {
	code int
	error
}

func badRequest(format string, args ...any) error {
	return &failure{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

// allKindsPage returns the handler of a page that has no parameter for a kind. It refuses one, which would be ignored.
func allKindsPage(write func(w http.ResponseWriter) error) handler {
	return func(response http.ResponseWriter, r *http.Request) error {
		if r.URL.Query().Has("kind") {
			return badRequest("%s is about all kinds, and takes no ?kind=", r.URL.Path)
		}
		return write(response)
	}
}

// valuePage returns the handler of a page that has the value as JSON.
func valuePage[T any](value func() T) handler {
	return allKindsPage(func(w http.ResponseWriter) error { return writeValue(w, value()) })
}

// listPage returns the handler of a page that has the elements as a JSON array. It encodes one element at a time, since
// 5,000 clients take hundreds of megabytes.
func listPage(elements iter.Seq[any]) handler {
	return allKindsPage(func(w http.ResponseWriter) error {
		return writeJSON(w, func(w io.Writer) error { return writeList(w, elements) })
	})
}

// writeValue answers with a value as indented JSON.
func writeValue(w http.ResponseWriter, value any) error {
	return writeJSON(w, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	})
}

// writeJSON answers with the JSON that write produces.
func writeJSON(w http.ResponseWriter, write func(io.Writer) error) error {
	w.Header().Set("Content-Type", "application/json")
	_ = write(w) // an error means that the client is gone
	return nil
}

// reply writes a line of plain text.
func reply(w http.ResponseWriter, format string, args ...any) error {
	_, _ = fmt.Fprintf(w, format+"\n", args...) //nolint:gosec // the text is plain
	return nil
}

// writeList writes an array in the format of writeValue, one element at a time.
func writeList(writer io.Writer, elements iter.Seq[any]) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("  ", "  ")
	encoder.SetEscapeHTML(false)
	separator, end := "[\n  ", "[]\n"
	for element := range elements {
		text.Reset()
		text.WriteString(separator)
		separator, end = ",\n  ", "\n]\n"
		if err := encoder.Encode(element); err != nil {
			return err
		}
		if _, err := writer.Write(bytes.TrimSuffix(text.Bytes(), []byte("\n"))); err != nil {
			return err // the reader closed the connection
		}
	}
	_, err := io.WriteString(writer, end)
	return err
}
