package admin

import (
	"net/http"
	"strings"

	"tributary/internal/words"
	"tributary/resource"
)

// kindNamed returns the schema that a request means by a name; if there is none, it has answered that it is an error.
func kindNamed(w http.ResponseWriter, name string) (*resource.Schema, bool) {
	schema, ok := resource.SchemaByName(name)
	if ok {
		return schema, true
	}
	var names, known []string
	for _, s := range resource.Schemas() {
		names = append(append(names, strings.ToLower(string(s.Kind)), s.Plural), s.ShortNames...)
		known = append(known, s.Plural)
	}
	http.Error(w, "unknown kind \""+name+"\""+words.Meant(name, names)+"; known: "+strings.Join(known, ", "), http.StatusBadRequest)
	return nil, false
}

// ofAllKinds answers with an error if a request asks for one kind of a page that has all: it would be given what it did not ask for.
func ofAllKinds(w http.ResponseWriter, r *http.Request) bool {
	if !r.URL.Query().Has("kind") {
		return true
	}
	http.Error(w, r.URL.Path+" is about all kinds, and takes no ?kind=", http.StatusBadRequest)
	return false
}
