package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPayloadsComeBackAsTheyWent(t *testing.T) {
	p := &Payload{
		Kind: "ServerCheckRequest", ClientIP: "127.0.0.1", Headers: map[string]string{"accessToken": "x", "a": ""},
		Body: []byte(`{}`),
	}
	data, err := Codec{}.Marshal(p)
	require.NoError(t, err)
	var got Payload
	require.NoError(t, Codec{}.Unmarshal(data, &got))
	require.Equal(t, p, &got)
	_, err = Codec{}.Marshal("text")
	require.Error(t, err)
	require.Error(t, Codec{}.Unmarshal(nil, "text"))
}

func FuzzPayload(f *testing.F) {
	f.Add((&Payload{Kind: "k", Headers: map[string]string{"a": "b"}, Body: []byte("{}")}).marshal())
	f.Fuzz(func(t *testing.T, content []byte) {
		var p, again Payload
		if p.unmarshal(content) != nil {
			return
		}
		require.NoError(t, again.unmarshal(p.marshal()))
		require.Equal(t, p.Kind, again.Kind)
		require.Equal(t, string(p.Body), string(again.Body))
	})
}
