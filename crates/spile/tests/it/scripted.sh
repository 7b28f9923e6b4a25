# A test server: newline framing, protocol 2025-11-25, with a tool for each way to misbehave. Appends every line it reads to
# `log`. `server.sh old` exits on `server/discover`; `server.sh stubborn` ignores SIGTERM and does not exit at the end of stdin.
[ "$1" = stubborn ] && trap '' TERM
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
text() { answer "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]}"; }
tool() { printf '{"name":"%s","description":"%s","inputSchema":{"type":"object","properties":{%s}}%s}' "$@"; }
while IFS= read -r line; do
  printf '%s\n' "$line" >>log
  id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case "$line" in
  *'"method":"initialize"'*)
    answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{},"completions":{},"logging":{}},"serverInfo":{"name":"scripted\u001b[31m","version":"1.0"}}' ;;
  *'"method":"server/discover"'*)
    # Some old servers exit on a request before the handshake.
    [ "$1" = old ] && exit 1
    printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"what?"}}\n' "$id"
    ;;
  *'"method":"ping"'* | *'"method":"logging/setLevel"'*) answer '{}' ;;
  *'"method":"tools/list"'*)
    answer "{\"tools\":[$(tool table 'Rows and more' '' ',"annotations":{"destructiveHint":true}'),$(tool media 'Pictures and sounds' '' ''),$(tool echo 'Says it again' '"n":{"type":"integer"},"x":{"type":"number"}' ''),$(tool chatty 'Says more than it is asked' '' ''),$(tool escapes 'Hostile' '' ''),$(tool error '' '' ''),$(tool failed '' '' ''),$(tool dies '' '' ''),$(tool hangs '' '' ''),$(tool asks 'Asks first' '' ''),$(tool confirms 'Asks yes or no' '' ''),$(tool visits 'Wants a page visited' '' ''),$(tool works 'Takes a while' '' ''),$(tool 'p\u200bay\udb40\udd00' 'Looks like pay\u3164\u2060\u00ad\u180e' '' ''),$(tool noise '' '' ''),$(tool evil 'Line one\nline \u001b]0;title\u0007two' '"a\u001b[2Jb":{"type":"string","description":"\u202eesrever","enum":["\u001b[31m"]}' '')]}" ;;
  *'"method":"resources/list"'*)
    answer '{"resources":[{"uri":"note://one","name":"one","mimeType":"text/plain","size":12345},{"uri":"note://bytes","name":"bytes","description":"Not text"}]}' ;;
  *'"method":"resources/templates/list"'*) answer '{"resourceTemplates":[{"uriTemplate":"note://{name}","name":"any","description":"A note by its name"}]}' ;;
  *'"uri":"note://one"'*) answer '{"contents":[{"uri":"note://one","mimeType":"text/plain","text":"first line\nsecond\tline"}]}' ;;
  *'"uri":"note://bytes"'*) answer '{"contents":[{"uri":"note://bytes","mimeType":"image/png","blob":"AP9wbmc="}]}' ;;
  *'"method":"resources/read"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no such note","data":{"uri":"note://gone"}}}\n' "$id" ;;
  *'"method":"prompts/list"'*) answer '{"prompts":[{"name":"greet","description":"Says hello","arguments":[{"name":"name","required":true},{"name":"how"}]}]}' ;;
  *'"method":"prompts/get"'*) answer '{"description":"A greeting","messages":[{"role":"user","content":{"type":"text","text":"Hello, Dana!"}},{"role":"assistant","content":{"type":"image","mimeType":"image/png","data":"AP9wbmc="}}]}' ;;
  *'"method":"completion/complete"'*) answer '{"completion":{"values":["Dana","Dora\u001b[2J"],"hasMore":true}}' ;;
  *'"name":"table"'*)
    answer '{"content":[{"type":"text","text":"{\"items\": []}"}],"structuredContent":{"items":[{"id":12345678901234567890123,"name":"Ada","tags":["a","b"]},{"id":2,"note":null,"name":"a rather long text that goes on and on, further than most terminals are wide, so that it has to be cut somewhere"},{"id":3,"more":{"deep":true}}],"total":3}}' ;;
  *'"name":"media"'*)
    answer '{"content":[{"type":"image","mimeType":"image/png","data":"AP9wbmc="},{"type":"audio","mimeType":"audio/wav","data":"AP9wbmc="},{"type":"resource","resource":{"uri":"note://one","text":"inside"}},{"type":"resource_link","uri":"note://two","name":"two"},{"type":"hologram"}]}' ;;
  *'"name":"echo"'*) text "$(printf '%s' "$line" | sed 's/.*"arguments":\({[^}]*}\).*/\1/; s/"/\\"/g')" ;;
  *'"name":"chatty"'*)
    printf '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"db","data":"slow\\u001b[2J"}}\n'
    printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"total":2}}\n' "$id"
    text done ;;
  *'"name":"works"'*)
    for n in 1 2 3; do
      printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%s,"total":3,"message":"step %s"}}\n' "$id" "$n" "$n"
      sleep 0.1
    done
    text done ;;
  *'"name":"escapes"'*)
    answer '{"content":[{"type":"text","text":"a\u001b[2Jb\u0007c\u009b31md \u202egnorw\rover\r\nnext"}],"structuredContent":{"k\u001b]0;x\u0007":"v\u001b[31m\nw","n":"\u202e"}}' ;;
  *'"name":"error"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"it broke\\u001b[2J","data":{"at":"\\u001b[1mhere"}}}\n' "$id" ;;
  *'"name":"failed"'*) answer '{"content":[{"type":"text","text":"could not \u001b[31mdo it"}],"isError":true}' ;;
  *'"name":"dies"'*) echo "out of tea" >&2; exit 7 ;;
  *'"name":"hangs"'*) ;;
  *'"name":"noise"'*) echo 'not JSON at all'; echo '{"jsonrpc":"2.0","id":999,"result":{}}'; text done ;;
  *'"name":"asks"'*)
    asked=$id
    printf '{"jsonrpc":"2.0","id":900,"method":"elicitation/create","params":{"message":"Who are you?\\u001b[2J","requestedSchema":{"type":"object","properties":{"name":{"type":"string","minLength":2},"age":{"type":"integer","default":30},"plan":{"type":"string","enum":["free","ruby"],"enumNames":["Free","Ruby"]},"mail":{"type":"string","format":"email"}},"required":["name","plan"]}}}\n' ;;
  *'"name":"confirms"'*)
    asked=$id
    printf '{"jsonrpc":"2.0","id":900,"method":"elicitation/create","params":{"message":"Delete 3 rows?","requestedSchema":{"type":"object","properties":{"confirm":{"type":"boolean","title":"Yes, do it"}},"required":["confirm"]}}}\n' ;;
  *'"id":900'*'"confirm":false'*) id=$asked; answer '{"content":[{"type":"text","text":"the user declined; nothing was deleted"}],"isError":true}' ;;
  *'"name":"visits"'*)
    asked=$id
    printf '{"jsonrpc":"2.0","id":900,"method":"elicitation/create","params":{"mode":"url","elicitationId":"e","message":"Please sign in","url":"https://example.com/sign-in?x=1"}}\n' ;;
  *'"id":900'*) id=$asked; text "$(printf '%s' "$line" | sed 's/.*"result"://; s/}$//; s/"/\\"/g')" ;;
  *'"method":"tools/call"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such tool"}}\n' "$id" ;;
  esac
done
[ "$1" = stubborn ] && sleep 60
